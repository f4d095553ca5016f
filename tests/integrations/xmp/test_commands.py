"""`familiar gallery export --xmp` and `import --xmp`."""

import json
from pathlib import Path

import pytest

from familiar.gallery import Gallery
from support.cli import Familiar
from support.color_album import draw_album


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw_album(tmp_path / "photos", red=3, green=3, blue=1)
    return tmp_path / "photos"


@pytest.fixture
def clustered(familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path) -> Path:
    """Enrolled and clustered by the commands: #1 and #2 of three, blue alone."""
    folder = tmp_path / "my album"
    assert familiar("gallery", "enroll", folder, photos, "--model", mean_color_bundle).code == 0
    assert familiar("gallery", "cluster", folder).code == 0
    return folder


def named(folder: Path) -> set[Path]:
    """Return the photos with a face of Rosa."""
    with Gallery.open(folder) as gallery:
        photos = {photo.photo: Path(photo.path) for photo in gallery.photos_to_search(without_face=False)}
        return {photos[face.photo] for face in gallery.faces() if face.name == "Rosa"}


def test_names_go_into_photos_metadata_and_back(familiar: Familiar, clustered: Path, photos: Path):
    familiar("gallery", "name", clustered, "#1", "Rosa")
    result = familiar("gallery", "export", clustered, "--xmp")
    assert result.out == f"{clustered}: 3 named faces in 3 photos; 3 sidecars written; 0 skipped\n"
    assert len(list(photos.glob("*.png.xmp"))) == 3
    assert "nothing to change" in familiar("gallery", "export", clustered, "--xmp").out
    before = named(clustered)
    familiar("gallery", "undo", clustered)
    assert named(clustered) == set()
    imported = json.loads(familiar("gallery", "import", clustered, "--xmp", photos, "--json").out)
    assert (imported["faces"], imported["identities"], imported["skipped"]) == (3, 1, [])
    assert named(clustered) == before
    familiar("gallery", "undo", clustered)
    familiar("gallery", "import", clustered, "--xmp", photos, "--exclude", "*[13].png")
    assert 0 < len(named(clustered)) < 3
    familiar("gallery", "undo", clustered)
    exported = json.loads(familiar("gallery", "export", clustered, "--xmp", "--in-place", "--json").out)
    assert (exported["faces"], exported["removed"], exported["jpegs"]) == (0, 3, 0)


def test_bad_sidecars_are_reported(familiar: Familiar, clustered: Path):
    familiar("gallery", "name", clustered, "#1", "Rosa")
    photo = min(named(clustered))
    photo.with_name(f"{photo.name}.xmp").write_text("no XML")
    result = familiar("gallery", "export", clustered, "--xmp")
    assert result.code == 0
    assert "2 sidecars written; 1 skipped" in result.out
    assert f"skipped {photo}.xmp: is not valid XML" in result.err
    assert "repair or remove it" in result.err
    result = familiar("gallery", "import", clustered, "--xmp", photo)
    assert result.code == 1
    assert (
        result.err.splitlines()[-1]
        == f"familiar: {clustered}: no name in the photos' metadata matches a face; nothing was imported"
    )
