"""Another program writes between what a change to the register reads and what it writes: it has to wait."""

from pathlib import Path
from types import ModuleType

import pytest

from familiar.core.errors import GalleryBusy
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery import Gallery
from familiar.gallery.store import connection
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets import found_pets, register_table
from familiar.integrations.lost_pets.register import set_reports
from familiar.integrations.lost_pets.reports import Report


def try_after(monkeypatch: pytest.MonkeyPatch, gallery: Gallery, module: ModuleType | type, read: str) -> list[str]:
    """Let another program try to name #1 after each call of `module.read`; return what it got."""
    outcomes: list[str] = []
    original = getattr(module, read)

    def read_then_try(*arguments: object, **options: object) -> object:
        result = original(*arguments, **options)
        monkeypatch.setattr(connection, "BUSY_SECONDS", 0.0)
        try:
            with Gallery.open(gallery.folder) as other:
                other.name(1, "other")
        except GalleryBusy:
            outcomes.append("busy")
        return result

    monkeypatch.setattr(module, read, read_then_try)
    return outcomes


def test_marking_a_found_pet_as_different_is_about_the_pet_that_it_is_now(
    album: Store, embedder: Embedder, pets: list[Path], monkeypatch: pytest.MonkeyPatch
):
    gallery = Gallery(album, embedder)
    gallery.enroll(pets[:6], WholePhoto())
    lost, pet = (gallery.split(faces).identity for faces in ([1, 2, 3], [4, 5, 6]))
    set_reports(gallery, {lost: Report("lost"), pet: Report("found")})
    outcomes = try_after(monkeypatch, gallery, found_pets, "known_pets")
    found_pets.search_found_pet(gallery, "pet", pets[3:6], WholePhoto(), dismissed=[lost])
    assert outcomes == ["busy"]
    assert gallery.decisions(1)[0].kind == "mark different"


def test_fields_that_a_table_leaves_are_those_of_now(
    album: Store, embedder: Embedder, pets: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    gallery = Gallery(album, embedder)
    gallery.enroll(pets[:3], WholePhoto())
    gallery.split([1, 2, 3], "Luna")
    (tmp_path / "table.csv").write_text("name,place\n#1,here\n")
    outcomes = try_after(monkeypatch, gallery, Gallery, "attributes")
    register_table.import_register(gallery, tmp_path / "table.csv")
    assert outcomes == ["busy"]
