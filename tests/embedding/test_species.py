"""Bundles of several species: which embeds what, and files that say so."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.calibration import Calibration, Threshold
from familiar.core.errors import BadBundle, FamiliarError, NoBundleForSpecies, UnknownSpecies, UnreadablePhoto
from familiar.core.species_means import SpeciesMeans
from familiar.core.types import Crop, Face, Photo
from familiar.embedding.bundle import BundleMetadata, load_bundle, network_bytes, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.embedding.species import FAMILY, assign_species, open_bundles, read_species_file, write_species_file
from familiar.embedding.verification import verify, verify_faces
from familiar.photos.preprocessing import Preprocessing
from support.colored_species import ByColor, colored, mosaic_bundle, save_colored, tiny_species

RED, GREEN, BLUE = (200, 20, 20), (20, 200, 20), (20, 20, 200)
POINT = Threshold(0.9, 0.0, 1.0)
METADATA = BundleMetadata(
    space_id="s",
    embedding_dim=3,
    preprocessing=Preprocessing(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
    calibration=Calibration(POINT, POINT, POINT, 20.0, -18.0, 0.0, 1, 1),
    prefixes=(3,),
    recipe="none",
    network="mosaic",
    precision="float32",
    trained_on={},
    results={},
    parity={},
    license="",
)


@pytest.fixture
def pets(mean_color_bundle: Path, tmp_path: Path) -> Embedder:
    return tiny_species(mean_color_bundle, tmp_path)


@pytest.fixture(scope="module")
def module_pets(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    """The bundles of `pets`, opened once for property tests."""
    folder = tmp_path_factory.mktemp("pets")
    sizes = {"cat": 48, "dog": 64}
    return Embedder({name: mosaic_bundle(folder / f"{name}.onnx", METADATA, size) for name, size in sizes.items()})


def change_metadata(path: Path, **changes: object) -> Path:
    bundle = load_bundle(path)
    path.write_bytes(serialize_bundle(network_bytes(bundle), replace(bundle.metadata, **changes)))
    return path


def photos_of(*colors: tuple[int, int, int]) -> list[Photo]:
    return [colored(rgb, f"{row}", seed=row) for row, rgb in enumerate(colors)]


def open_in_memory(source: Photo, /, *, min_side_px: int | None = None) -> Photo:  # noqa: ARG001 - a photo in memory
    return source


# --- embedding ----------------------------------------------------------------------------------------------------


def test_embeds_each_photo_with_the_bundle_of_its_species(pets: Embedder):
    photos = photos_of(RED, GREEN, RED, GREEN, GREEN)
    embedded = embed_photos(pets, photos, ByColor(), open_photo=open_in_memory)
    assert embedded.skipped == ()
    assert embedded.species == ("cat", "dog", "cat", "dog", "dog")
    assert embedded.embeddings.shape == (5, 27 + 48)
    for name, rows, other in (("cat", [0, 2], slice(27, None)), ("dog", [1, 3, 4], slice(0, 27))):
        only, columns = pets.only(name)
        expected = embed_photos(only, [photos[row] for row in rows], "none", open_photo=open_in_memory).embeddings
        np.testing.assert_allclose(embedded.embeddings[rows, columns], expected, atol=1e-6)
        assert not embedded.embeddings[rows, other].any()


@pytest.mark.slow
@given(st.lists(st.sampled_from([RED, GREEN, BLUE]), max_size=9), st.integers(1, 10), st.randoms())
def test_order_and_batch_size_do_not_matter(module_pets: Embedder, colors, batch_size, random):
    photos = photos_of(*colors)
    order = list(range(len(photos)))
    random.shuffle(order)

    def embed(chosen: list[Photo], size: int | None) -> dict[str, np.ndarray]:
        result = embed_photos(module_pets, chosen, ByColor(), open_photo=open_in_memory, batch_size=size)
        assert len(result.skipped) == sum(rgb == BLUE for rgb in colors)
        return {str(chosen[row].source): vector for row, vector in zip(result.rows, result.embeddings, strict=True)}

    embedded, shuffled = embed(photos, None), embed([photos[row] for row in order], batch_size)
    assert embedded.keys() == shuffled.keys() == {f"{row}" for row, rgb in enumerate(colors) if rgb != BLUE}
    for source, vector in embedded.items():
        np.testing.assert_allclose(vector, shuffled[source], atol=1e-6)


def test_faces_or_their_error_come_in_order(pets: Embedder, tmp_path: Path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no photo")
    blue = save_colored(tmp_path / "blue.png", BLUE)
    paths = [broken, save_colored(tmp_path / "red.png", RED), blue]
    for batch_size in (1, 2, 4):
        unreadable, red, person = pets.faces(paths, ByColor(), batch_size=batch_size)
        assert isinstance(unreadable, UnreadablePhoto)
        assert [face.species for face in red.faces] == ["cat"]
        assert (person.faces, person.face_count) == ((), 1)
        assert [type(error) for error in person.skipped] == [NoBundleForSpecies]
        assert str(person.skipped[0]) == f"{blue}: there is no bundle for person, but for cat, dog"
    skipped = embed_photos(pets, paths, ByColor()).skipped
    assert [type(error) for error in skipped] == [UnreadablePhoto, NoBundleForSpecies]


def test_best_face_is_the_best_that_has_a_bundle(pets: Embedder):
    class Halves:
        def detect(self, photo: Photo) -> list[Face]:
            width, height = photo.size_px
            boxes = {"person": (0.0, 0.0, width / 2, height), "cat": (width / 2, 0.0, width, height)}
            return [Face(box, None, 0.9, label=label) for label, box in boxes.items()]

    pixels = np.concatenate([colored(rgb, "half").rgb_u8 for rgb in (BLUE, RED)], axis=1)
    pair = Photo(pixels, "pair", (pixels.shape[1], pixels.shape[0]))
    best = pets.detect_faces(pair, Halves(), open_photo=open_in_memory, choice="best")
    assert ([face.from_left for face in best.faces], best.face_count) == ([2], 2)
    with pytest.raises(NoBundleForSpecies):
        pets.face(pair, Halves(), open_photo=open_in_memory, number=1)


def test_species_that_is_given_overrides_the_detector(pets: Embedder, tmp_path: Path):
    red = save_colored(tmp_path / "red.png", RED)
    assert pets.face(red, ByColor(), species="dog").species == "dog"
    assert pets.face(red, "none", species="cat").species == "cat"
    with pytest.raises(NoBundleForSpecies, match="there is no bundle for horse, but for cat, dog"):
        list(pets.faces([red], ByColor(), species="horse"))


def test_crop_of_unknown_species_is_an_error(pets: Embedder, tmp_path: Path):
    red = save_colored(tmp_path / "red.png", RED)
    with pytest.raises(
        UnknownSpecies, match=r"red\.png: nothing says of which species this face is: name it, with --species"
    ):
        pets.face(red, "none")
    crop = Crop(np.full((48, 48, 3), RED, np.uint8), "crop")
    with pytest.raises(UnknownSpecies, match="crop: nothing says"):
        pets.embed([crop])
    only, columns = pets.only("cat")
    np.testing.assert_array_equal(pets.embed([crop], species="cat")[:, columns], only.embed([crop]))


def test_each_bundle_crops_with_its_own_margin(mean_color_bundle: Path, tmp_path: Path):
    metadata = load_bundle(mean_color_bundle).metadata
    wide = replace(metadata, preprocessing=replace(metadata.preprocessing, margin=0.5))
    pets = Embedder({"cat": mosaic_bundle(tmp_path / "cat.onnx", wide, 32), "dog": mean_color_bundle})

    class CenterBox:
        def detect(self, photo: Photo) -> list[Face]:  # noqa: ARG002 - always there
            return [Face((40, 40, 80, 80), None, 1.0, label="cat")]

    pixels = np.full((120, 120, 3), GREEN, np.uint8)
    pixels[40:80, 40:80] = RED
    framed = Photo(pixels, "framed", (120, 120))
    face = pets.face(framed, CenterBox(), open_photo=open_in_memory)
    squares = face.embedding[pets.only("cat")[1]].reshape(3, 2, 2)
    assert squares[1].min() > squares[0].max()  # mostly green


def test_two_bundles_of_one_space_share_its_components(mean_color_bundle: Path, tmp_path: Path):
    metadata = load_bundle(mean_color_bundle).metadata
    first = mosaic_bundle(tmp_path / "mosaic.onnx", metadata, 48)
    (tmp_path / "other").mkdir()
    second = mosaic_bundle(tmp_path / "other" / "mosaic.onnx", metadata, 48, "BGR")
    pets = Embedder({"cat": first, "dog": second})
    assert list(pets.bundles) == [("cat", "dog")]
    assert len(pets.all_bundles) == 2
    assert pets.space == load_bundle(first).metadata.space
    crops = [Crop(np.full((48, 48, 3), RED, np.uint8), "crop")] * 2
    cat, dog = pets.embed(crops, species=["cat", "dog"])
    assert cat @ dog < 0.5  # each by its own network


def test_photos_of_two_species_are_two_individuals(pets: Embedder, tmp_path: Path):
    red, other = save_colored(tmp_path / "r.png", RED), save_colored(tmp_path / "s.png", (180, 60, 20), 1)
    cat, second, dog = (pets.face(path, ByColor()) for path in (red, other, save_colored(tmp_path / "g.png", GREEN)))
    assert verify_faces(pets, cat, second) == verify(red, other, pets.only("cat")[0], detector="none")
    different = verify_faces(pets, cat, dog)
    assert (different.same, different.similarity, different.threshold) == (False, 0.0, None)


# --- which bundle is for which species ----------------------------------------------------------------------------


@pytest.fixture
def bundles(mean_color_bundle: Path, tmp_path: Path) -> dict[str, str]:
    """A bundle that has means of cats and dogs, one for faces that YuNet finds, and one that says nothing."""
    metadata = load_bundle(mean_color_bundle).metadata
    means = SpeciesMeans({"cat": (0.1, 0.2, 0.1), "dog": (0.2, 0.1, 0.1)}, metadata.calibration)
    paths = {name: mosaic_bundle(tmp_path / f"{name}.onnx", metadata, 16) for name in ("pets", "faces", "any")}
    change_metadata(paths["pets"], species_means=means)
    change_metadata(paths["faces"], detector="yunet")
    change_metadata(paths["any"], detector="auto")
    return {name: str(path) for name, path in paths.items()}


def test_bundles_say_which_species_they_are_for(bundles: dict[str, str]):
    pets, faces, others = bundles["pets"], bundles["faces"], bundles["any"]
    assert assign_species([pets, faces]) == {"cat": pets, "dog": pets, "person": faces}
    assert assign_species([others, pets]) == {"cat": pets, "dog": pets, "person": others}
    assert assign_species([faces, others]) == {"person": faces, "cat": others, "dog": others}
    named = assign_species([pets, f"person,rabbit={others}"])
    assert named == {"cat": pets, "dog": pets, "person": others, "rabbit": others}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["pets", "cat={any}"], "two models are for cat: .*pets.onnx and .*any.onnx; say which is for which species"),
        (["any", "any"], "does not say which species it is for; name it, as in cat=.*any.onnx"),
        (["pets", "faces", "any"], "does not say which species it is for"),
    ],
)
def test_unclear_choice_is_refused(bundles: dict[str, str], chosen: list[str], message: str):
    with pytest.raises(FamiliarError, match=message):
        assign_species([bundles.get(each, each.format(**bundles)) for each in chosen])


def test_shipped_bundles_say_which_species_they_are_for(bundles: dict[str, str]):
    assert assign_species(["pet-mobile", "person-mobile"]) == FAMILY
    assert assign_species(["pet-mobile", bundles["faces"]]) == {**FAMILY, "person": bundles["faces"]}
    with pytest.raises(FamiliarError, match=r"two models are for person: .*faces\.onnx and person-mobile; say which"):
        assign_species([bundles["faces"], "person-mobile"])
    for model, species in (
        ("person-mobile", {"person"}),
        ("pet-nano", {"cat", "dog"}),
        (bundles["any"], None),
        ({"cat": "pet-nano"}, {"cat"}),
    ):
        assert Embedder(model).made_for == species


def test_one_bundle_for_a_species_that_is_named_leaves_out_others(bundles: dict[str, str]):
    assert list(open_bundles([f"cat={bundles['any']}"])) == ["cat"]
    assert list(open_bundles(f"cat={bundles['any']}")) == ["cat"]
    assert list(open_bundles([bundles["any"]])) == [None]


def test_names_open_the_same_bundles_again(bundles: dict[str, str], tmp_path: Path):
    embedder = Embedder([bundles["pets"], bundles["faces"]])
    assert embedder.names == (f"cat,dog={bundles['pets']}", f"person={bundles['faces']}")
    again = Embedder(embedder.names)
    assert (again.names, again.space, again.species) == (embedder.names, embedder.space, embedder.species)
    assert Embedder("pet-nano").names == ("pet-nano",)
    assert Embedder("cat=pet-nano").names == ("cat=pet-nano",)
    write_species_file(tmp_path / "family.json", {"cat": bundles["any"]})
    assert Embedder([tmp_path / "family.json"]).names == (str(tmp_path / "family.json"),)


def test_bundle_of_several_is_none(pets: Embedder):
    with pytest.raises(FamiliarError, match="takes a single bundle, not one for each of cat, dog"):
        _ = pets.metadata


# --- files --------------------------------------------------------------------------------------------------------


def test_file_names_shipped_bundles_and_paths_beside_it(bundles: dict[str, str], tmp_path: Path):
    file = tmp_path / "family.json"
    write_species_file(file, {"cat": "pet-nano", "person": bundles["faces"]})
    assert json.loads(file.read_text()) == {"cat": "pet-nano", "person": "faces.onnx"}
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("family.json", "faces.onnx"):
        (tmp_path / name).rename(moved / name)
    embedder = Embedder(moved / "family.json")
    assert embedder.species == ("cat", "person")
    assert embedder.path == moved / "family.json"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "does not name a bundle for each species"),
        ("{}", "does not name a bundle for each species"),
        ('{"cat": 3}', "does not name a bundle for each species"),
        ('{"cat": "/etc/passwd"}', "names a bundle by an absolute path, /etc/passwd; give it relative to the file"),
        (r'{"cat": "\\\\server\\share"}', "names a bundle by an absolute path"),
        ('{"cat": "gone.onnx"}', r"gone\.onnx: no bundle found"),
        ('{"a cat": "pet-nano"}', "species name 'a cat': use only letters"),
    ],
)
def test_bad_file_is_refused(tmp_path: Path, content: str, message: str):
    file = tmp_path / "family.json"
    file.write_text(content)
    with pytest.raises(FamiliarError, match=message):
        Embedder(file)


def test_missing_file_is_named(tmp_path: Path):
    with pytest.raises(BadBundle, match=r"family\.json: cannot be read"):
        read_species_file(tmp_path / "family.json")
