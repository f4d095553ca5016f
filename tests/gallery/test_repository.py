"""Statements of the repository that only the web server uses."""

import hashlib

from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.editing.undo_log import undo
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


def test_clustering_is_not_pending_after_the_user_undid_it(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 2]))
    cluster(gallery)
    undo(gallery)
    assert not is_clustering_pending(gallery)


def test_identity_numbers_count_deleted_identities(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 2]))
    with gallery.read() as repository:
        assert repository.identities.last_number() == 0
    cluster(gallery)
    with gallery.read() as repository:
        assert repository.identities.last_number() == 2
        assert [repository.identities.count_after(number) for number in (0, 1, 2)] == [2, 1, 0]
    undo(gallery)
    with gallery.read() as repository:
        assert repository.identities.last_number() == 2, "numbers are never reused"
        assert repository.identities.count_after(0) == 0


def test_paths_of_photos_are_listed_by_content(gallery: Store):
    embeddings = draw_individuals([2])
    enroll_vectors(gallery, embeddings)
    names = ["photo 0.jpg", "photo 1.jpg"]
    encoded = gallery.encode_embeddings(embeddings)
    hashes = [hashlib.sha256(name.encode() + b"\0" + row).hexdigest() for name, row in zip(names, encoded, strict=True)]
    with gallery.read() as repository:
        assert sorted(repository.photos.paths()) == names
        assert [(row.sha256.hex(), row.path) for row in repository.photos.rows()] == list(
            zip(hashes, names, strict=True)
        )
