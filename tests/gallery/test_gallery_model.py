"""A gallery remembers its model and its detector, and its photos can be looked at again with another detector."""

from pathlib import Path

import pytest

from familiar import Gallery
from familiar.core.errors import BadBundle, BadDetector, Contradiction, NoFaceFound, SpaceMismatch
from familiar.detection.detectors import _say_replaced
from familiar.embedding.embedder import Embedder
from familiar.embedding.species import write_species_file
from familiar.gallery.edits.manual_faces import delete_face, set_face_box
from familiar.gallery.same.decisions import undo
from support.color_album import draw_photo
from support.colored_squares import ColoredSquares, use_colored_squares
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.small_gallery import rows


@pytest.fixture(autouse=True)
def detectors(monkeypatch: pytest.MonkeyPatch) -> None:
    use_colored_squares(monkeypatch)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_mean_color_bundle(tmp_path / "model.onnx", CALIBRATED)


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """A cat, a person, and both."""
    (tmp_path / "photos").mkdir()
    names = {"cat": ("red",), "person": ("blue",), "both": ("red", "blue")}
    return [
        draw_photo(tmp_path / "photos" / f"{name}.png", *colors, shade=shade)
        for shade, (name, colors) in enumerate(names.items())
    ]


@pytest.fixture
def album(tmp_path: Path, model: Path, photos: list[Path]) -> Path:
    """The photos, searched for pets."""
    with Gallery.create(tmp_path / "album", model, detector="pets") as gallery:
        assert gallery.enroll(photos).faces == 2
    return tmp_path / "album"


def faces_in(gallery: Gallery) -> list[tuple[str, str | None]]:
    table = gallery.table().to_arrow().to_pylist()
    return sorted((Path(row["path"]).stem, row["species"]) for row in table)


# --- the model --------------------------------------------------------------------------------------------------------


def test_later_calls_need_neither_model_nor_detector(album: Path, photos: list[Path], tmp_path: Path):
    more = draw_photo(tmp_path / "more.png", "green", "blue")
    with Gallery.open(album) as gallery:
        assert gallery.search(photos[2], 1)[0].path == str(photos[2])
        assert gallery.enroll(more).faces == 1  # the dog, as people are not looked for
        with pytest.raises(
            NoFaceFound, match=r"dog found \(.* not searched for people; .*--redetect --detector auto\)"
        ):
            gallery.search(photos[1])


def test_gallery_without_a_named_model_takes_pets_and_people(tmp_path: Path, photos: list[Path]):
    with Gallery.create(tmp_path / "family") as gallery:
        assert gallery.enroll(photos[:2]).faces == 2
        assert gallery.not_searched_for() == ""
    with Gallery.open(tmp_path / "family") as gallery:  # it remembers which bundle is for which species
        assert gallery.enroll(photos).faces == 2
        assert faces_in(gallery) == [("both", "cat"), ("both", "person"), ("cat", "cat"), ("person", "person")]
        reference = gallery.model_reference
        assert reference.models == ("cat,dog=pet-mobile", "person=person-mobile")
        assert (reference.species, reference.detector) == (("cat", "dog", "person"), "auto")


def test_gallery_of_a_model_for_pets_names_the_command_that_adds_people(tmp_path: Path, photos: list[Path]):
    folder = tmp_path / "pets"
    with Gallery.create(folder, "pet-nano") as gallery:
        assert gallery.enroll(photos).without_face == 1
        command = f"familiar gallery migrate {folder} --model pet-nano --model person-mobile"
        assert gallery.command_to_find_more() == command
        assert gallery.not_searched_for() == f" (this album is not searched for people; to change that: {command})"
        assert gallery.migrate(Embedder(["pet-nano", "person-mobile"])).redetection.faces == 2
        assert gallery.command_to_find_more() is None
        assert gallery.enroll(redetect=True).without_face == 0
    with Gallery.open(folder) as gallery:
        assert gallery.model_reference.models == ("cat,dog=pet-nano", "person=person-mobile")


def test_people_that_a_model_for_pets_embeds_are_told(tmp_path: Path, photos: list[Path]):
    folder = tmp_path / "pets"
    with Gallery.create(folder, "pet-nano", detector="auto") as gallery:
        assert gallery.unsuited_for() == "people"
        assert gallery.not_searched_for() == ""
        assert gallery.command_to_find_more() == (
            f"familiar gallery migrate {folder} --model pet-nano --model person-mobile"
        )
        gallery.enroll(photos)
        gallery.migrate(gallery.models_to_find_more())
        assert (gallery.unsuited_for(), gallery.models_to_find_more()) == ("", ())
        assert ("person", "person") in faces_in(gallery)
    with Gallery.create(tmp_path / "crops", "pet-nano", detector="none") as gallery:
        assert (gallery.unsuited_for(), gallery.models_to_find_more()) == ("", ())


def test_photos_without_a_model_for_their_faces_are_counted_apart(tmp_path: Path, photos: list[Path]):
    with Gallery.create(tmp_path / "pets", ["cat,dog=pet-nano"], detector="auto") as gallery:
        result = gallery.enroll(photos)
        assert (result.faces, result.without_face, result.without_bundle) == (2, 0, 1)
        again = gallery.enroll(redetect=True)
        assert (again.searched_again, again.without_face, again.without_bundle) == (1, 0, 1)


def test_gallery_of_a_model_whose_detector_is_missing_takes_auto(
    photos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """That is said once, also where the model is used without a gallery. A detector that is asked for stays."""
    monkeypatch.setenv("FAMILIAR_MODELS", str(tmp_path / "none"))
    _say_replaced.cache_clear()
    model = write_mean_color_bundle(tmp_path / "people.onnx", CALIBRATED, detector="yunet")
    with Gallery.create(tmp_path / "people", model) as gallery:
        assert gallery.enroll(photos).faces == 4
        assert gallery.store.model_reference.detector == "auto"
    assert isinstance(Embedder(model).detector(), ColoredSquares)
    (message,) = caplog.messages
    assert message == (
        "the model is made for the yunet detector, whose ONNX file is not here: auto takes its place; `familiar "
        "download yunet` fetches it"
    )
    for make_detector in (
        lambda: Embedder(model).detector("yunet"),
        lambda: Embedder(model).detector(None, tmp_path / "y"),
    ):
        with pytest.raises(BadDetector, match="yunet detector needs its ONNX file"):
            make_detector()


def test_gallery_with_a_moved_model_says_so_and_learns_its_new_place(album: Path, model: Path, photos: list[Path]):
    moved = model.rename(model.with_name("moved.onnx"))
    with Gallery.open(album) as gallery:  # what needs no model works
        assert gallery.statistics().photos == 3
        with pytest.raises(BadBundle, match=r"model\.onnx cannot be opened; give its place: --model PATH"):
            gallery.search(photos[0])
    Gallery.open(album, moved).close()
    with Gallery.open(album) as gallery:
        assert gallery.search(photos[0])
        assert gallery.store.model_reference.models == (str(moved),)


def test_another_model_is_refused_with_both_names_and_the_remedy(album: Path, model: Path, tmp_path: Path):
    other = write_mean_color_bundle(tmp_path / "other.onnx", CALIBRATED, "other")
    message = rf"{model}.* not {other}.* familiar gallery migrate {album} --model {other}"
    with pytest.raises(SpaceMismatch, match=message):
        Gallery.open(album, other)
    write_mean_color_bundle(model, CALIBRATED, "other")
    with Gallery.open(album) as gallery, pytest.raises(SpaceMismatch, match=rf"{model} is another model now"):
        _ = gallery.embedder


# --- the detector -----------------------------------------------------------------------------------------------------


def test_another_detector_is_refused_with_both_names_and_the_remedy(album: Path, photos: list[Path]):
    message = rf"is pets, not auto.* familiar gallery enroll {album} --redetect --detector auto"
    with Gallery.open(album) as gallery:
        for call in (gallery.enroll, gallery.search):
            with pytest.raises(Contradiction, match=message):
                call(photos[1], detector="auto")
        assert gallery.enroll(photos, detector="pets").known == 3
        assert gallery.search(photos[1], 1, detector="none")  # a query that is a crop
        assert gallery.search(photos[1], 1, detector=ColoredSquares(["person"]))
        with pytest.raises(Contradiction):
            gallery.enroll(photos, detector="none")


def test_first_photos_may_name_the_detector(tmp_path: Path, model: Path, photos: list[Path]):
    with Gallery.create(tmp_path / "album", model) as gallery:
        assert gallery.enroll(photos, detector="auto").faces == 4
        assert gallery.store.model_reference.detector == "auto"


# --- looking again ----------------------------------------------------------------------------------------------------


def test_looking_again_finds_what_another_detector_finds_and_keeps_the_rest(album: Path, photos: list[Path]):
    with Gallery.open(album) as gallery:
        gallery.split([str(photos[0])], "Tom")
        before = rows(gallery.store, ("faces", "identities", "assignments"))
        result = gallery.enroll(redetect=True, detector="auto")
        assert (result.searched_again, result.faces, result.without_face, result.not_detected) == (3, 2, 0, 0)
        after = rows(gallery.store, before)
        assert all(set(map(tuple, before[table])) <= set(map(tuple, after[table])) for table in before)
        assert faces_in(gallery) == [("both", "cat"), ("both", "person"), ("cat", "cat"), ("person", "person")]
        again = gallery.enroll(redetect=True)
        assert (again.searched_again, again.faces) == (0, 0)
        assert gallery.enroll(photos).known == 3  # the album's detector is the new one


def test_looking_again_without_another_detector_reads_only_photos_without_a_face(album: Path, photos: list[Path]):
    with Gallery.open(album) as gallery:
        result = gallery.enroll(redetect=True)
        assert (result.searched_again, result.faces, result.without_face) == (1, 0, 1)
        assert gallery.enroll(photos[:1], redetect=True).searched_again == 0


def test_looking_again_lists_photos_that_are_missing_or_changed(album: Path, photos: list[Path]):
    photos[0].unlink()
    draw_photo(photos[1], "blue", shade=9)
    with Gallery.open(album) as gallery:
        result = gallery.enroll(redetect=True, detector="auto")
    assert [str(error).split(": ")[0] for error in result.skipped] == [str(photos[0]), str(photos[1])]
    assert (result.searched_again, result.faces) == (1, 1)


def test_faces_that_were_deleted_moved_or_forgotten_are_not_detected_again(album: Path):
    with Gallery.open(album) as gallery:
        gallery.enroll(redetect=True, detector="auto")
        table = gallery.table().to_arrow().to_pylist()
        number = {(Path(row["path"]).stem, row["species"]): row["face"] for row in table}
        delete_face(gallery.store, number["cat", "cat"])
        delete_face(gallery.store, number["both", "person"])
        undo(gallery.store)
        set_face_box(gallery.store, gallery.embedder, number["both", "person"], (40.0, 0.0, 48.0, 8.0))
        gallery.split([number["person", "person"]], "Ada")
        gallery.forget(identity="Ada")
        before = faces_in(gallery)
        result = gallery.enroll(redetect=True, detector=ColoredSquares(("cat", "dog", "person")))
        # Something was detected in each, which was deleted or forgotten.
        assert (result.searched_again, result.faces, result.without_face, result.without_bundle) == (3, 0, 0, 0)
        assert faces_in(gallery) == before


def test_face_takes_the_place_of_a_photo_that_was_enrolled_as_a_crop(tmp_path: Path, model: Path, photos: list[Path]):
    with Gallery.create(tmp_path / "album", model, detector="none") as gallery:
        gallery.enroll(photos)
        gallery.split([str(photos[2])], "Tom")
        result = gallery.enroll(redetect=True, detector="auto")
        assert result.faces == 1  # the second one of the last photo
        assert [len(faces_in(gallery)), gallery.identities()[0].name] == [4, "Tom"]
        match = gallery.search(photos[0], 2)
        assert [hit.name for hit in match] == [None, "Tom"]
        assert match[1].similarity > 0.99  # of the red square, no more of the whole photo


# --- migrating to a model of more species -----------------------------------------------------------------------------


def species_file(folder: Path, *names: str) -> Path:
    """Write a file with a bundle for each of these species."""
    folder.mkdir()
    bundles = {name: write_mean_color_bundle(folder / f"{name}.onnx", CALIBRATED, name) for name in names}
    write_species_file(folder / "family.json", bundles)
    return folder / "family.json"


def test_migrating_to_bundles_for_more_species_finds_the_faces_that_were_left_out(tmp_path: Path, photos: list[Path]):
    pets = species_file(tmp_path / "pets", "cat", "dog")
    with Gallery.create(tmp_path / "album", pets, detector="auto") as gallery:
        assert len(gallery.enroll(photos).skipped_faces) == 2
        result = gallery.migrate(species_file(tmp_path / "all", "cat", "dog", "person"))
        assert (result.reembedded_faces, result.detector, result.redetection.faces) == (2, "auto", 2)
    with Gallery.open(tmp_path / "album") as gallery:
        assert len(gallery.search(photos[1])) == 2  # the people
        assert gallery.store.model_reference.models == (str(tmp_path / "all" / "family.json"),)


def test_migrating_to_a_model_for_a_wider_detector_changes_the_detector(
    album: Path, tmp_path: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch
):
    other = write_mean_color_bundle(tmp_path / "other.onnx", CALIBRATED, "other")
    with Gallery.open(album) as gallery:
        assert gallery.migrate(other).detector is None  # its detector is "none"
        monkeypatch.setattr(Embedder, "detector_name", "auto")
        result = gallery.migrate(write_mean_color_bundle(tmp_path / "third.onnx", CALIBRATED, "third"))
        assert (result.detector, result.redetection.searched_again, result.redetection.faces) == ("auto", 3, 2)
        assert gallery.store.model_reference.detector == "auto"
        assert gallery.search(photos[1], 1)
