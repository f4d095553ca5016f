"""When a gallery has faces that are still to be clustered."""

from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.same.decisions import undo
from familiar.gallery.store.store import Store
from support.small_gallery import draw_individuals, enroll_vectors


def is_clustering_pending(gallery: Store) -> bool:
    with gallery.read() as repository:
        return repository.settings.is_clustering_pending()


def test_clustering_is_pending_until_all_faces_are_clustered(gallery: Store):
    assert not is_clustering_pending(gallery), "no face"
    enroll_vectors(gallery, draw_individuals([3, 2]))
    assert is_clustering_pending(gallery)
    cluster(gallery)
    assert not is_clustering_pending(gallery)
    enroll_vectors(gallery, draw_individuals([1], seed=1), "later")
    assert is_clustering_pending(gallery)
    cluster(gallery, rebuild=True)
    undo(gallery)
    assert not is_clustering_pending(gallery), "the user does not want it"
