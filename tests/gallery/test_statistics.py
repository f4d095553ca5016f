"""Statistics of a gallery after clustering and corrections."""

from pathlib import Path

import pytest

from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.same.assignments import resolve_face
from familiar.gallery.same.decisions import undo
from familiar.gallery.search import folder_index
from familiar.gallery.search.statistics import MAX_DECISIONS, gallery_statistics
from support.color_album import create_gallery, draw_album, draw_photo


def test_gallery_statistics_report_identities_counts_and_decisions(
    tmp_path: Path, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    paths = draw_album(tmp_path / "photos", green=2, red=3, blue=1)
    paths.append(draw_photo(tmp_path / "photos" / "both.png", "green", "red", shade=9))
    with create_gallery(tmp_path / "gallery", mean_color_bundle, paths) as gallery:
        initial = gallery_statistics(gallery)
        assert (initial.identities, initial.unassigned, initial.decisions) == ((), 8, ())
        cluster(gallery)
        face = resolve_face(gallery, str(paths[0]))
        green = next(identity.number for identity in gallery_statistics(gallery).identities if identity.faces == 3)
        corrections.name_identity(gallery, green, "Gerd")
        corrections.confirm(gallery, [face])
        corrections.split(gallery, [resolve_face(gallery, str(paths[5]))], "Blau")
        corrections.reject(gallery, [resolve_face(gallery, str(paths[5]))])
        statistics = gallery_statistics(gallery)
        assert (statistics.photos, statistics.faces, statistics.unassigned) == (7, 8, 1)
        red, gerd, blau = statistics.identities
        assert (red.name, red.faces, red.confirmed) == (None, 4, 0)
        assert (gerd.name, gerd.faces, gerd.confirmed) == ("Gerd", 3, 1)
        assert (gerd.face, gerd.path) == (face, str(paths[0])), "a confirmed face represents the identity"
        assert (blau.name, blau.faces, blau.face, blau.path) == ("Blau", 0, None, None)
        assert statistics.space.space_id == "mean-color"
        assert statistics.size_bytes == sum(path.stat().st_size for path in (tmp_path / "gallery").iterdir())
        assert [decision.kind for decision in statistics.decisions] == [
            "reject",
            "split",
            "confirm",
            "name",
            "cluster",
        ]
        corrections.confirm(gallery, [1])
        assert len(gallery_statistics(gallery).decisions) == MAX_DECISIONS == 5
        undo(gallery)

        monkeypatch.setattr(folder_index, "INDEX_FROM", 8)
        assert not gallery_statistics(gallery).indexed
        folder_index.build_index(gallery)
        assert gallery_statistics(gallery).indexed
