"""The `Gallery` class: each method does what the function behind it does, with names and paths as a user gives them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from familiar import Gallery
from familiar.core.errors import BadBundle, Contradiction, FamiliarError, NotInGallery, SpaceMismatch
from familiar.core.types import Crop
from familiar.detection.faces import crop_photo
from familiar.embedding.embedder import Embedder
from familiar.gallery.search.filters import Filter
from familiar.gallery.store.model_reference import NO_REFERENCE
from familiar.photos.preprocessing import Preprocessing
from support.color_album import draw_album
from support.random_bundle import random_bundle


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three red, three green and one blue photo."""
    draw_album(tmp_path / "photos", red=3, green=3, blue=1)
    return tmp_path / "photos"


@pytest.fixture
def album(tmp_path: Path, photos: Path, mean_color_bundle: Path) -> Iterator[Gallery]:
    """The photos, clustered: #1 green, #2 red, blue unassigned."""
    with Gallery.create(tmp_path / "album", mean_color_bundle) as gallery:
        gallery.enroll(photos)
        gallery.cluster()
        yield gallery


def members(gallery: Gallery) -> dict[str, int]:
    return {identity.name or f"#{identity.identity}": identity.faces for identity in gallery.identities()}


def test_album_in_ten_lines(tmp_path: Path, photos: Path, mean_color_bundle: Path):
    with Gallery.create(tmp_path / "album", str(mean_color_bundle)) as gallery:
        enrolled = gallery.enroll(str(photos))
        clustered = gallery.cluster()
        gallery.name("#2", "Tom")
        (best, *_), identities = gallery.search(photos / "red1.png"), gallery.identify(photos / "red1.png")
        exported = gallery.export(tmp_path / "sorted")
    assert (enrolled.photos, enrolled.faces, enrolled.skipped) == (7, 7, ())
    assert (clustered.identities, clustered.unassigned) == (2, 1)
    assert (best.name, Path(best.path).name) == ("Tom", "red1.png")
    assert (identities[0].name, identities[0].known) == ("Tom", True)
    assert {path.name for path in (tmp_path / "sorted").iterdir()} >= {"Tom"}
    assert exported


def test_query_may_be_path_crop_or_embedding(album: Gallery, photos: Path):
    assert album.embedder is not None
    preprocessing = album.embedder.metadata.preprocessing
    crop = crop_photo(photos / "green1.png", preprocessing)
    assert isinstance(crop, Crop)
    embedding = album.embedder.embed([crop])[0]
    expected = album.search(photos / "green1.png", 3)
    assert album.search(crop, 3) == expected == album.search(embedding, 3)
    assert album.search(photos / "green1.png", 3, detector="center")[0].identity == 1
    assert [hit.identity for hit in album.search(embedding, 7, only=Filter(identities=(1,)))] == [1, 1, 1]


def test_verifies_a_query_against_an_identity(album: Gallery, photos: Path):
    album.name(2, "Tom", confirm=True)
    assert album.verify(photos / "red2.png", "Tom").same
    assert not album.verify(photos / "green2.png", "#2").same
    with pytest.raises(NotInGallery, match="Kitty"):
        album.verify(photos / "red2.png", "Kitty")


def test_corrections_and_undo(album: Gallery, photos: Path):
    album.name(2, "Tom", confirm=True)
    with pytest.raises(Contradiction):
        album.name(1, "Tom")
    album.split([str(photos / "red3.png")], "Rosa")
    questions = album.questions(5)
    album.answer(questions[0], same=True)
    assert questions[0] not in album.questions(5)
    album.merge("Tom", ["Rosa"])
    assert "Rosa" not in members(album)
    album.move([str(photos / "blue1.png")], "Tom")
    album.reject([str(photos / "blue1.png")])
    before = members(album)
    album.confirm([str(photos / "green1.png")])
    assert [change.kind for change in album.decisions(3)] == ["confirm", "reject", "move"]
    assert [album.undo().kind, album.undo().kind] == ["confirm", "reject"]
    assert members(album)["Tom"] == before["Tom"] + 1


def test_forgets_an_identity_or_photos(album: Gallery, photos: Path):
    assert album.forget(identity="#2").faces == 3
    assert album.forget(photos=photos / "blue1.png").photos == 1
    assert album.statistics().faces == 3
    with pytest.raises(ValueError, match="either an identity or photos"):
        album.forget(identity=1, photos=[photos / "red1.png"])
    with pytest.raises(ValueError, match="either an identity or photos"):
        album.forget()


def test_identity_that_changed_since_the_user_decided_is_not_forgotten(album: Gallery, photos: Path):
    state = album.states([2])[2]
    album.move([str(photos / "blue1.png")], 2)
    with pytest.raises(Contradiction):
        album.forget(identity=2, state=state)
    assert (album.count_faces(2), album.count_faces(99)) == (4, 0)


def test_labels_and_exports(album: Gallery, tmp_path: Path):
    album.name(1, "Tom")
    assert album.export(tmp_path / "faces.csv") == 7
    album.name(1, "Tim")
    assert album.import_labels(tmp_path / "faces.csv").faces >= 3
    assert "Tom" in members(album)
    album.export(tmp_path / "sorted")
    assert album.import_labels(tmp_path / "sorted").skipped is not None
    assert album.check().problems == ()


def test_opened_without_its_model_it_takes_embeddings_only(album: Gallery, photos: Path):
    folder = album.store.folder
    with album.store.write() as repository:
        repository.settings.set_model_reference(NO_REFERENCE)
    album.close()
    with Gallery.open(folder) as reopened:
        assert members(reopened) == {"#1": 3, "#2": 3}
        assert reopened.search(np.array([1, 0, 0], np.float32), 1)[0].identity == 2
        for call in (reopened.enroll, reopened.search):
            with pytest.raises(FamiliarError, match=r"does not know where its model is; .*Gallery\.open\("):
                call(photos / "red1.png")


def test_migrates_to_another_model(album: Gallery, photos: Path, tmp_path: Path, mean_color_bundle: Path):
    crops = Preprocessing(size_px=24, resize_px=24, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    other = random_bundle(tmp_path / "other.onnx", sorted(photos.iterdir()), crops)
    before, folder = members(album), album.store.folder
    assert album.migrate(other).reembedded_faces == 7
    assert members(album) == before
    assert album.search(photos / "red1.png", 1)[0].similarity == pytest.approx(1, abs=1e-3)
    album.close()
    with Gallery.open(folder, Embedder(other)) as reopened:
        assert reopened.statistics().photos == 7
    for model, error in (("no-such-model", BadBundle), (mean_color_bundle, SpaceMismatch)):
        with pytest.raises(error):
            Gallery.open(folder, model)


def test_corrections_need_faces(album: Gallery):
    for correct in (album.confirm, album.split, album.reject, lambda faces: album.move(faces, 1)):
        with pytest.raises(ValueError, match="at least one face"):
            correct([])
    assert not [change for change in album.decisions() if change.kind != "cluster"]


def test_faces_of_a_query_are_counted_from_1(album: Gallery, photos: Path):
    with pytest.raises(ValueError, match="counted from 1, got 0"):
        album.search(photos / "red1.png", face=0)
    with pytest.raises(ValueError, match="counted from 1, got 0"):
        album.embedder.face(photos / "red1.png", number=0)


def test_attributes_are_records_that_merging_joins_and_undo_restores(album: Gallery):
    first, second = (each.identity for each in album.identities()[:2])
    album.set_attributes(first, {"place": "Elm Street"})
    album.set_attributes(second, {"place": "Harbor", "date": "2026-05-31"})
    assert album.attributes(second) == [{"place": "Harbor", "date": "2026-05-31"}]
    album.merge(first, [second])
    joined = [{"place": "Elm Street"}, {"place": "Harbor", "date": "2026-05-31"}]
    assert album.attributes(first) == joined
    assert album.all_attributes() == {first: joined}
    with pytest.raises(NotInGallery):
        album.attributes(second)
    album.undo()
    assert album.all_attributes() == {first: joined[:1], second: joined[1:]}
    album.set_attributes(first, {})
    assert album.attributes(first) == []


def test_several_corrections_are_one_change_or_none(album: Gallery):
    first, second = (each.identity for each in album.identities()[:2])
    names = album.names()
    with album.decision("reunite"):
        album.merge(first, [second])
        album.name(first, "Wanderer")
        album.set_attributes(first, {"status": "home"})
    assert album.decisions(1)[0].kind == "reunite"
    album.undo()
    assert album.names() == names
    assert {first, second} <= {each.identity for each in album.identities()}

    def merge_then_fail() -> None:
        with album.decision("reunite"):
            album.merge(first, [second])
            album.name(first, "#1")

    with pytest.raises(Contradiction):
        merge_then_fail()
    assert album.names() == names


def test_events_tell_in_order_what_was_enrolled_named_merged_and_undone(album: Gallery):
    before = album.events()
    assert {each.kind for each in before} == {"enrolled"}
    numbers = [photo for each in before for photo in each.photos]
    assert numbers == [photo.photo for photo in album.photos()]
    last = before[-1].number
    first, second = (each.identity for each in album.identities()[:2])
    album.name(second, "Tom")
    album.name(second, "Tom")
    album.merge(first, [second])
    album.undo()
    named, merged, undone = album.events(last)
    assert [named.kind, merged.kind, undone.kind] == ["named", "merged", "undone"]
    assert (named.identity, named.name) == (second, "Tom")
    assert (merged.identity, merged.merged) == (first, second)
    assert album.events(undone.number) == []
    album.forget(photos=[numbers[0]])
    assert [photo for each in album.events() for photo in each.photos] == numbers[1:]
    assert len(album.events(limit=1)) == 1
