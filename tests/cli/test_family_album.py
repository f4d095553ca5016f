"""An album of pets and people for which nothing is named: the first photos, those of next week, and an upload."""

import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar import Gallery
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings
from support.cli import Familiar


def species_in(album: Path) -> dict[str, str | None]:
    """Return the species of the only face of each photo, by the photo's name."""
    with Gallery.open(album) as gallery:
        return {Path(row["path"]).stem: row["species"] for row in gallery.table().to_arrow().to_pylist()}


@pytest.fixture
def photos(shared_data: Path, tmp_path: Path) -> dict[str, list[Path]]:
    """Photos of a cat, a dog and a person, three each."""
    folders = {
        "cat": "cats23_gpriamo/s01_Tigro",
        "dog": "dogs29_stdove/dog_B",
        "person": "lfw_photos_devtest/Amelie_Mauresmo",
    }
    copies: dict[str, list[Path]] = {}
    for species, name in folders.items():
        files = sorted((shared_data / name).glob("*.jpg"))[:3]
        copies[species] = [
            Path(shutil.copy(file, tmp_path / f"{species}{number}.jpg")) for number, file in enumerate(files, 1)
        ]
    return copies


@pytest.mark.shared_data
def test_people_embedded_by_a_model_for_pets_are_told(
    familiar: Familiar, photos: dict[str, list[Path]], tmp_path: Path
):
    result = familiar(
        "gallery", "enroll", tmp_path / "album", *photos["person"], "--model", "pet-nano", "--detector", "auto"
    )
    assert f"the model of {tmp_path / 'album'} is not made for people, whom its detector finds too" in result.err
    assert f"familiar gallery migrate {tmp_path / 'album'} --model pet-nano --model person-mobile" in result.err


@pytest.mark.shared_data
def test_pets_and_people_are_found_by_commands_and_pages_alike(
    familiar: Familiar, photos: dict[str, list[Path]], tmp_path: Path
):
    album, numbers = tmp_path / "album", ("first", "next week", "upload")
    weeks = dict(zip(numbers, zip(*photos.values(), strict=True), strict=True))
    for week in numbers[:2]:
        assert familiar("gallery", "enroll", album, *weeks[week]).code == 0
    with TestClient(
        make_app(Service(Settings(gallery=album))), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)
    ) as client:
        files = [("files", (path.name, path.read_bytes())) for path in weeks["upload"]]
        job = client.post("/api/v1/photos", files=files).json()
        while job["state"] not in ("done", "failed"):
            job = client.get(f"/api/v1/jobs/{job['number']}").json()
        assert (job["photos"], job["faces"], job["without_face"]) == (3, 3, 0)
    faces = species_in(album)
    assert len(faces) == 9
    enrolled = {f"{species}{number}": species for species in photos for number in (1, 2)}
    assert enrolled.items() <= faces.items()
    assert sorted(faces[name] or "" for name in faces.keys() - enrolled.keys()) == ["cat", "dog", "person"]
