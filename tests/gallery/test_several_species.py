"""Galleries of several species: embeddings of each bundle in components of their own, one list of identities."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from familiar.core.calibration import Threshold
from familiar.core.errors import FamiliarError, NoBundleForSpecies, SpaceMismatch, UnknownSpecies
from familiar.core.species_means import SpeciesMeans
from familiar.core.vectors import normalize
from familiar.detection.detectors import DETECTORS, DetectorSpec
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections, manual_faces
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.gallery import Gallery
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.search.listing import face_confidences
from familiar.gallery.search.search import Filter, search_faces, search_identities, verify, verify_pair
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.migrate import migrate
from familiar.metrics.calibration import uncalibrated
from support.colored_species import ByColor, save_colored, tiny_species
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.property_tests import expensive
from support.small_gallery import (
    DIM,
    SPACE,
    THRESHOLD,
    draw_individuals,
    enroll_vectors,
    groups,
    identity_of,
)

STRICT = replace(SPACE.calibration, balanced=Threshold(0.8, 0.01, 0.9), slope=40.0, intercept=-32.0)
CATS, DOGS = replace(SPACE, space_id="cats", species=("cat",)), Space("dogs", 8, (8,), STRICT, species=("dog",))
ROUTED = Space("routed", DIM + 8, (), uncalibrated(), parts=(CATS, DOGS))
FACES = 12  # of each individual


def as_cats(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.zeros((len(rows), 8), np.float32)], axis=1)


def as_dogs(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((len(rows), DIM), np.float32), normalize(rows[:, :8])], axis=1)


@pytest.fixture
def routed(folder: Path) -> Iterator[Store]:
    with Store.create(folder, ROUTED, embedding_dtype="float32") as gallery:
        gallery._connection.execute("PRAGMA synchronous = OFF")
        yield gallery


def gallery_of(folder: Path, space: Space, rows: np.ndarray) -> Store:
    gallery = Store.create(folder, space, embedding_dtype="float32")
    enroll_vectors(gallery, rows)
    return gallery


# --- the space --------------------------------------------------------------------------------------------------------


def test_space_is_stored_with_its_parts():
    assert Space.from_json(ROUTED.to_json()) == ROUTED
    assert Space.from_json(SPACE.to_json()).part_spaces == (SPACE,)
    assert ROUTED.lengths == (DIM + 8,)
    assert ROUTED.part_columns == (slice(0, DIM), slice(DIM, DIM + 8))


@given(st.lists(st.booleans(), max_size=20))
def test_part_is_that_of_the_components_that_are_not_zero(is_dog: list[bool]):
    rows = draw_individuals([len(is_dog)]) if is_dog else np.empty((0, DIM), np.float32)
    combined = np.where(np.array(is_dog, bool)[:, None], as_dogs(rows), as_cats(rows)).astype(np.float16)
    assert ROUTED.part_of(combined).tolist() == [int(each) for each in is_dog]
    assert not SPACE.part_of(rows).any()


# --- two galleries in one -----------------------------------------------------------------------------------------


@settings(expensive())
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_clusters_and_matches_as_a_gallery_of_each_species_would(
    tmp_path_factory: pytest.TempPathFactory, cats: list[int], dogs: list[int], seed: int
):
    folder = tmp_path_factory.mktemp("albums")
    cat_rows, dog_rows = draw_individuals(cats, seed), draw_individuals(dogs, seed + 1)[:, :8]
    dog_rows = normalize(dog_rows)
    with (
        gallery_of(folder / "routed", ROUTED, np.concatenate([as_cats(cat_rows), as_dogs(dog_rows)])) as both,
        gallery_of(folder / "cats", CATS, cat_rows) as only_cats,
        gallery_of(folder / "dogs", DOGS, dog_rows) as only_dogs,
    ):
        for gallery in (both, only_cats, only_dogs):
            cluster(gallery)
        moved = {frozenset(face + len(cat_rows) for face in group) for group in groups(only_dogs)}
        assert groups(both) == groups(only_cats) | moved
        for query, single, apart in ((as_cats, only_cats, cat_rows), (as_dogs, only_dogs, dog_rows)):
            (row,) = query(apart[:1])
            expected, matches_of_both = search_identities(single, apart[0]), search_identities(both, row)
            assert [match.known for match in matches_of_both] == [match.known for match in expected]
            for name in ("mean", "best", "probability"):
                values = ([getattr(match, name) for match in matches] for matches in (matches_of_both, expected))
                np.testing.assert_allclose(*values, atol=1e-5)
            hits, alone_hits = search_faces(both, row, 5), search_faces(single, apart[0], 5)
            np.testing.assert_allclose(
                [hit.similarity for hit in hits], [hit.similarity for hit in alone_hits], atol=1e-5
            )


def test_search_never_returns_faces_of_another_part(routed: Store):
    enroll_vectors(routed, np.concatenate([as_cats(draw_individuals([3])), as_dogs(draw_individuals([4]))]))
    hits = search_faces(routed, as_cats(-draw_individuals([1]))[0], 10)  # negative similarities are below zero
    assert {hit.face for hit in hits} == {1, 2, 3}
    assert {hit.face for hit in search_faces(routed, as_dogs(draw_individuals([1]))[0], 10)} == {4, 5, 6, 7}
    assert search_faces(routed, as_dogs(draw_individuals([1]))[0], 10, only=Filter(species="cat")) == []
    assert search_identities(routed, as_dogs(draw_individuals([1]))[0]) == []


def test_identity_of_two_parts_is_compared_by_the_faces_of_one(routed: Store):
    """A photo of a cat that was routed as a dog, and that the user moved to the cat."""
    cats, (dog,) = draw_individuals([4, 4]), as_dogs(draw_individuals([1]))
    enroll_vectors(routed, np.concatenate([as_cats(cats), dog[None]]))
    corrections.split(routed, [1, 2, 3], "Mia")
    expected = search_identities(routed, as_cats(cats)[3])[0]
    corrections.move(routed, [9], 1)
    assert search_identities(routed, as_cats(cats)[3])[0] == expected
    assert verify(routed, as_cats(cats)[3], 1).same
    (matches_of_both,) = search_identities(routed, dog)
    assert (matches_of_both.identity, matches_of_both.face) == (1, 9)
    assert verify(routed, dog, 1).similarity == pytest.approx(1.0)
    fits = {each.face.face: each for each in face_confidences(routed, 1)}
    assert fits[9].probability is None  # no other face of its part
    assert fits[1].probability is not None


def test_each_part_has_its_own_thresholds_and_curve(routed: Store):
    assert [routed.space.calibration_at(DIM + 8, part) for part in (0, 1)] == [CATS.calibration, STRICT]
    pair = np.zeros((2, 8), np.float32)
    pair[:, 0], pair[1, 1] = (1.0, 0.7), np.sqrt(1 - 0.49)
    wide = np.pad(pair, ((0, 0), (0, DIM - 8)))
    as_cat, as_dog = (verify_pair(routed, *embed(wide)) for embed in (as_cats, as_dogs))
    assert as_cat.similarity == pytest.approx(as_dog.similarity)
    assert (as_cat.same, as_cat.threshold) == (True, THRESHOLD)
    assert (as_dog.same, as_dog.threshold) == (False, 0.8)
    assert as_cat.probability == pytest.approx(1 / (1 + np.exp(-2.0)), abs=1e-4)
    assert as_dog.probability == pytest.approx(1 / (1 + np.exp(4.0)), abs=1e-4)


def test_species_means_are_subtracted_within_a_part(folder: Path):
    mean = normalize(np.ones((1, DIM), np.float32))[0]
    rows = normalize(0.6 * mean + draw_individuals([3, 3]))
    with_means = replace(CATS, species_means=SpeciesMeans({"cat": tuple((0.5 * mean).tolist())}, CATS.calibration))
    space = replace(ROUTED, parts=(with_means, DOGS))
    with (
        gallery_of(folder, space, np.concatenate([as_cats(rows), as_dogs(draw_individuals([2]))])) as both,
        gallery_of(folder / "cats", with_means, rows) as single,
    ):
        np.testing.assert_allclose(both.faces().embeddings[:6, :DIM], single.faces().embeddings, atol=1e-6)
        np.testing.assert_array_equal(both.faces().embeddings[6:], both.stored_faces().embeddings[6:])
        (query,) = as_cats(rows[:1])
        np.testing.assert_allclose(
            both.faces().center_query(query)[:DIM], single.faces().center_query(rows[0]), atol=1e-6
        )
        np.testing.assert_array_equal(both.faces().center_query(both.faces().embeddings[6]), both.faces().embeddings[6])


# --- photos ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Three photos of red cats, of green dogs, and of blue people."""
    folder = tmp_path_factory.mktemp("animals")
    colors = {"cat": (200, 20, 20), "dog": (20, 200, 20), "person": (20, 20, 200)}
    return {
        name: [save_colored(folder / f"{name} {index}.png", rgb, index) for index in range(3)]
        for name, rgb in colors.items()
    }


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    """Networks for cats and dogs, which take crops of different sizes; none for people."""
    folder = tmp_path_factory.mktemp("pets")
    return tiny_species(write_mean_color_bundle(folder / "features.onnx", CALIBRATED), folder)


@pytest.fixture
def album(folder: Path, pets: Embedder, animals: dict[str, list[Path]]) -> Iterator[Store]:
    """A gallery of all cats and dogs."""
    with Store.create(folder, Space.from_model(pets), embedding_dtype="float32") as gallery:
        gallery._connection.execute("PRAGMA synchronous = OFF")
        enroll(gallery, pets, [*animals["cat"], *animals["dog"]], ByColor())
        yield gallery


def species_of(gallery: Store) -> list[str | None]:
    with gallery.read() as repository:
        return repository.faces.species()


def test_enrolls_each_face_with_the_bundle_of_its_species(album: Store, pets: Embedder, animals: dict[str, list[Path]]):
    assert species_of(album) == ["cat"] * 3 + ["dog"] * 3
    for part, (name, rows) in enumerate((("cat", slice(0, 3)), ("dog", slice(3, 6)))):
        stored = album.stored_faces().embeddings[rows]
        expected = embed_photos(pets.only(name)[0], animals[name], "none").embeddings
        np.testing.assert_allclose(stored[:, album.space.part_columns[part]], expected, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1.0, atol=1e-6)


def test_face_of_a_species_without_a_bundle_is_left_out_and_its_photo_is_known(
    album: Store, pets: Embedder, animals: dict[str, list[Path]]
):
    result = enroll(album, pets, animals["person"][:2], ByColor())
    assert (result.photos, result.faces, result.without_face, result.without_bundle) == (2, 0, 0, 2)
    assert [type(error) for error in result.skipped_faces] == [NoBundleForSpecies] * 2
    assert str(animals["person"][0]) in str(result.skipped_faces[0])
    assert enroll(album, pets, animals["person"][:2], ByColor()).known == 2


def test_user_and_detector_tell_the_species(folder: Path, pets: Embedder, animals: dict[str, list[Path]]):
    with Store.create(folder, Space.from_model(pets)) as gallery:
        enroll(gallery, pets, animals["dog"][:1], ByColor())
        enroll(gallery, pets, animals["dog"][1:2], ByColor(), species="cat")
        enroll(gallery, pets, animals["person"][:1], species="cat")
        assert species_of(gallery) == ["dog", "cat", "cat"]
        manual_faces.set_face_box(gallery, pets, 3, (4.0, 4.0, 44.0, 44.0))
        assert gallery.faces().parts.tolist() == [1, 0, 0]
        with pytest.raises(NoBundleForSpecies, match="no bundle for horse, but for cat, dog"):
            enroll(gallery, pets, animals["cat"][:1], species="horse")


def test_face_of_unknown_species_is_left_out(folder: Path, pets: Embedder, animals: dict[str, list[Path]]):
    with Store.create(folder, Space.from_model(pets)) as gallery:
        result = enroll(gallery, pets, animals["cat"][:1])  # it is a crop, and nobody says of what
        assert (result.photos, result.faces) == (1, 0)
        assert [type(error) for error in result.skipped_faces] == [UnknownSpecies]


def test_added_and_moved_faces_are_embedded_by_the_bundle_of_their_species(album: Store, pets: Embedder):
    manual_faces.delete_face(album, 4)
    with pytest.raises(UnknownSpecies):
        manual_faces.add_face(album, pets, 4, (0.0, 0.0, 48.0, 48.0))
    number = manual_faces.add_face(album, pets, 4, (0.0, 0.0, 48.0, 48.0), species="dog")
    assert species_of(album)[-1] == "dog"
    moved = (4.0, 4.0, 44.0, 44.0)
    manual_faces.set_face_box(album, pets, number, moved)
    manual_faces.set_face_box(album, pets, 1, moved)
    faces = album.faces()
    assert faces.parts[faces.rows_of(np.array([1, number]))].tolist() == [0, 1]
    assert species_of(album)[0] == "cat"


def test_gallery_class_takes_several_bundles(
    folder: Path, pets: Embedder, animals: dict[str, list[Path]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(DETECTORS, "by-color", DetectorSpec("by color", ByColor))
    with Gallery.create(folder, pets, detector="by-color") as gallery:
        gallery.enroll([*animals["cat"], *animals["dog"]])
        gallery.split([str(path) for path in animals["dog"][:2]], "Rex")
        assert gallery.verify(animals["dog"][0], "Rex").similarity > 0.5
        assert gallery.verify(animals["cat"][0], "Rex").similarity == 0.0
        (best, *_) = gallery.search(animals["dog"][2])
        assert best.path == str(animals["dog"][2])
        with pytest.raises(NoBundleForSpecies, match="no bundle for person"):
            gallery.search(animals["person"][0])
    with pytest.raises(SpaceMismatch, match="familiar gallery migrate"):
        Gallery.open(folder, pets.only("cat")[0])
    Gallery.open(folder, pets).close()
    with Gallery.open(folder) as gallery:  # it remembers both bundles
        assert gallery.embedder.names == pets.names


def test_one_bundle_for_several_species_has_its_space(pets: Embedder):
    cats = pets.only("cat")[0]
    single = Embedder(dict.fromkeys(("cat", "dog"), cats.bundle))
    assert Space.from_model(single) == Space.from_model(cats)
    assert Space.from_model(pets).space_id == pets.space[0]
    assert [part.species for part in Space.from_model(pets).parts] == [("cat",), ("dog",)]


# --- migration --------------------------------------------------------------------------------------------------------


def test_migrates_to_several_bundles_and_back(folder: Path, pets: Embedder, animals: dict[str, list[Path]]):
    cats = pets.only("cat")[0]
    photos = [*animals["cat"], *animals["dog"]]
    with Store.create(folder, Space.from_model(cats), embedding_dtype="float32") as gallery:
        enroll(gallery, cats, photos, ByColor())
        corrections.split(gallery, [1, 2, 3], "Mia")
        before = gallery.faces().embeddings.copy()
        migrate(gallery, pets)
        assert gallery.space == Space.from_model(pets)
        assert gallery.faces().parts.tolist() == [0] * 3 + [1] * 3
        dim = cats.metadata.embedding_dim
        np.testing.assert_allclose(gallery.faces().embeddings[:3, :dim], before[:3], atol=1e-6)
        assert load_assignments(gallery).names == {1: "Mia"}
        assert identity_of(gallery, 3) == 1
        migrate(gallery, cats)
        np.testing.assert_allclose(gallery.faces().embeddings, before, atol=1e-6)


def test_migration_to_several_bundles_needs_the_photos_and_a_bundle_for_each_species(
    folder: Path, pets: Embedder, animals: dict[str, list[Path]], tmp_path: Path
):
    cats = pets.only("cat")[0]
    photo = save_colored(tmp_path / "cat.png", (200, 20, 20))
    with Store.create(folder, Space.from_model(cats), embedding_dtype="float32") as gallery:
        enroll(gallery, cats, [photo], ByColor())
        before = gallery.faces().embeddings.copy()
        photo.unlink()
        with pytest.raises(FamiliarError, match=r"cat.png.*several bundles need them"):
            migrate(gallery, pets)
        save_colored(photo, (200, 20, 20))
        enroll(gallery, cats, animals["person"][:1], ByColor())
        with pytest.raises(FamiliarError, match=r"no bundle for person.*models that have one for this species"):
            migrate(gallery, pets)
        np.testing.assert_array_equal(gallery.faces().embeddings[:1], before)
        assert gallery.space == Space.from_model(cats)
