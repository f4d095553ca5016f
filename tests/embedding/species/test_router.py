from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.calibration import Calibration, Threshold
from familiar.core.errors import (
    NoBundleForSpecies,
    NothingDetected,
    SpaceMismatch,
    UnreadablePhoto,
    UnsureSpecies,
)
from familiar.core.types import Crop, Face, Label, Photo
from familiar.detection.detectors import CenterSquare
from familiar.embedding.bundle import BundleMetadata, load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.model import embed_photos
from familiar.embedding.species.router import RoutedEmbedder
from familiar.embedding.species.verification import verify_routed
from familiar.embedding.verification import verify_photos
from familiar.photos.decoding import save_photo
from familiar.photos.preprocessing import Preprocessing
from support.tiny_router import color_classifier, colored, mosaic_bundle, save_colored, tiny_router

RED, GREEN, BLUE, GRAY = (200, 20, 20), (20, 200, 20), (20, 20, 200), (120, 120, 120)


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
def router(mean_color_bundle: Path, tmp_path: Path) -> RoutedEmbedder:
    return tiny_router(mean_color_bundle, tmp_path)


@pytest.fixture(scope="module")
def module_router(tmp_path_factory: pytest.TempPathFactory) -> RoutedEmbedder:
    """Create a router like `router` once, for property tests."""
    folder = tmp_path_factory.mktemp("router")
    features = mosaic_bundle(folder / "features.onnx", METADATA, 16)
    metadata = Embedder(features).metadata
    cat, dog = (
        Embedder(mosaic_bundle(folder / f"{name}.onnx", metadata, size), threads=1)
        for name, size in (("cat", 48), ("dog", 64))
    )
    classifier = color_classifier(metadata.space_id)
    return RoutedEmbedder(Embedder(features, threads=2), classifier, {"cat": cat, "dog": dog})


def photos_of(*colors: tuple[int, int, int]) -> list[Photo]:
    return [colored(rgb, f"{row}", seed=row) for row, rgb in enumerate(colors)]


def open_in_memory(source: Photo, /, *, min_side_px: int | None = None) -> Photo:  # noqa: ARG001 - a photo in memory
    return source


def test_embeds_each_row_with_bundle_for_its_species(router: RoutedEmbedder):
    photos = photos_of(RED, GREEN, RED, GREEN, GREEN)
    routed = router.embed_photos(photos, open_photo=open_in_memory)
    assert routed.skipped == ()
    assert {name: species.rows.tolist() for name, species in routed.by_species.items()} == {
        "cat": [0, 2],
        "dog": [1, 3, 4],
    }
    for name, width in (("cat", 27), ("dog", 48)):
        species = routed.by_species[name]
        unrouted = embed_photos(
            router.embedders[name], [photos[row] for row in species.rows], open_photo=open_in_memory
        )
        assert species.embeddings.shape == (len(species.rows), width)
        np.testing.assert_allclose(species.embeddings, unrouted.embeddings, atol=1e-6)
    assert [(row, name) for row, name, _ in routed.by_row()] == list(enumerate(["cat", "dog", "cat", "dog", "dog"]))


def test_probability_equals_closed_form(router: RoutedEmbedder):
    (red,) = router.embed([Crop(np.full((48, 48, 3), (90, 0, 0), np.uint8), "red")]).by_species["cat"].probabilities
    assert red == pytest.approx(np.exp(10) / (np.exp(10) + 2))


@pytest.mark.slow
@given(st.lists(st.sampled_from([RED, GREEN, BLUE, GRAY]), max_size=9), st.integers(1, 10), st.randoms())
def test_is_invariant_to_order_and_batch_size(module_router: RoutedEmbedder, colors, batch_size, random):
    photos = photos_of(*colors)
    order = list(range(len(photos)))
    random.shuffle(order)
    routed = module_router.embed_photos(photos, open_photo=open_in_memory)
    shuffled = module_router.embed_photos(
        [photos[row] for row in order], open_photo=open_in_memory, batch_size=batch_size
    )
    assert len(routed.by_row()) == sum(rgb in (RED, GREEN) for rgb in colors)
    assert len(routed.by_row()) + len(routed.skipped) == len(photos)
    assert sorted(map(str, routed.skipped)) == sorted(map(str, shuffled.skipped))
    for name, species in routed.by_species.items():
        moved = shuffled.by_species[name]
        indices = [[order[row] for row in moved.rows].index(row) for row in species.rows]
        np.testing.assert_allclose(species.embeddings, moved.embeddings[indices], atol=1e-6)
        np.testing.assert_allclose(species.probabilities, moved.probabilities[indices], atol=1e-6)
        assert (np.diff(moved.rows) > 0).all()


def test_skips_unsure_unreadable_and_unsupported_photos(router: RoutedEmbedder, tmp_path: Path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no photo")
    paths = [
        save_colored(tmp_path / "gray.png", GRAY),
        broken,
        save_colored(tmp_path / "red.png", RED),
        save_colored(tmp_path / "blue.png", BLUE),
    ]
    for batch_size in (1, 2, 4):
        routed = router.embed_photos(paths, batch_size=batch_size)
        assert [(row, name) for row, name, _ in routed.by_row()] == [(2, "cat")]
        assert [type(error) for error in routed.skipped] == [
            UnsureSpecies,
            UnreadablePhoto,
            NoBundleForSpecies,
        ]
        assert ["gray.png" in str(routed.skipped[0]), "broken.png" in str(routed.skipped[1])] == [True, True]
        assert "blue.png: shows a person" in str(routed.skipped[2])


def test_min_probability_is_inclusive(router: RoutedEmbedder):
    photos = photos_of((150, 110, 110))

    def sent(min_probability: float) -> list[tuple[int, str, float]]:
        classifier = replace(router.classifier, min_probability=min_probability)
        changed = RoutedEmbedder(router.feature_embedder, classifier, router.embedders)
        return changed.embed_photos(photos, open_photo=open_in_memory).by_row()

    ((_, _, probability),) = sent(0.0)
    assert 0.5 < probability < 0.9
    assert len(sent(0.5)) == len(sent(probability)) == 1
    assert sent(np.nextafter(probability, 1)) == sent(0.9) == sent(1.0) == []


def test_empty_input_returns_empty_embeddings(router: RoutedEmbedder):
    for routed in (router.embed([]), router.embed_photos([])):
        assert {name: species.embeddings.shape for name, species in routed.by_species.items()} == {
            "cat": (0, 27),
            "dog": (0, 48),
        }
        assert routed.by_row() == []


def test_accepts_any_crop_size(router: RoutedEmbedder):
    crops = [Crop(colored(RED, "r", size).rgb_u8, "r") for size in (32, 48, 100)]
    routed = router.embed(crops)
    assert routed.by_species["cat"].rows.tolist() == [0, 1, 2]
    np.testing.assert_allclose(
        routed.by_species["cat"].embeddings[1:2], router.embedders["cat"].embed(crops[1:2]), atol=1e-6
    )


def test_crop_at_network_size_is_not_cropped_again(mean_color_bundle: Path, tmp_path: Path):
    """Center cropping is for photos; crops were center cropped already."""
    features = Embedder(mean_color_bundle)
    cutting = replace(features.metadata.preprocessing, resize="center_crop", resize_px=64)
    mosaic = mosaic_bundle(tmp_path / "cat.onnx", replace(features.metadata, preprocessing=cutting), 48)
    bundle = load_bundle(mosaic)
    cat = Embedder(replace(bundle, metadata=replace(bundle.metadata, preprocessing=replace(cutting, size_px=48))))
    pixels = np.full((48, 48, 3), RED, np.uint8)
    pixels[:12] = GREEN
    crop = Crop(pixels, "red below green")
    routed = RoutedEmbedder(features, color_classifier(), {"cat": cat}).embed([crop])
    np.testing.assert_allclose(routed.by_species["cat"].embeddings, cat.embed([crop]), atol=1e-6)


def test_flip_applies_to_feature_and_species_networks(router: RoutedEmbedder, monkeypatch: pytest.MonkeyPatch):
    flipped: list[tuple[str, bool]] = []
    for name, embedder in (("features", router.feature_embedder), *router.embedders.items()):
        plain = embedder.run

        def run(images: np.ndarray, *, flip: bool, name: str = name, plain=plain) -> np.ndarray:
            flipped.append((name, flip))
            return plain(images, flip=flip)

        monkeypatch.setattr(embedder, "run", run)
    router.embed_photos(photos_of(RED), open_photo=open_in_memory, flip=True)
    assert flipped == [("features", True), ("cat", True)]


def test_shared_bundle_runs_once(router: RoutedEmbedder, monkeypatch: pytest.MonkeyPatch):
    features = router.feature_embedder
    shared = RoutedEmbedder(features, router.classifier, {"cat": features, "dog": features})
    runs: list[int] = []
    plain = features.run

    def run(images: np.ndarray, *, flip: bool = False) -> np.ndarray:
        runs.append(len(images))
        return plain(images, flip=flip)

    monkeypatch.setattr(features, "run", run)
    photos = photos_of(GREEN, RED)
    routed = shared.embed_photos(photos, open_photo=open_in_memory, batch_size=2)
    assert sum(runs) == 2
    unrouted = embed_photos(features, photos, open_photo=open_in_memory).embeddings
    np.testing.assert_allclose(routed.by_species["dog"].embeddings, unrouted[:1], atol=1e-6)
    np.testing.assert_allclose(routed.by_species["cat"].embeddings, unrouted[1:], atol=1e-6)


def test_opens_and_detects_each_photo_once(router: RoutedEmbedder):
    seen: list[str] = []

    class Spy(CenterSquare):
        def detect(self, photo: Photo) -> list[Face]:
            seen.append(f"searched {photo.source}")
            return [] if photo.source == "1" else super().detect(photo)

    def spy(source: Photo, /, *, min_side_px: int | None = None) -> Photo:
        seen.append(f"opened {source.source} {min_side_px}")
        return source

    edge = np.full((80, 40, 3), GREEN, np.uint8)
    wide = Photo(np.concatenate([edge, colored(RED, "0").rgb_u8, edge], axis=1), "0", (160, 80))
    photos = [wide, colored(GREEN, "1")]
    routed = router.embed_photos(photos, Spy(), open_photo=spy, batch_size=2)
    assert sorted(seen) == ["opened 0 None", "opened 1 None", "searched 0", "searched 1"]
    assert [type(error) for error in routed.skipped] == [NothingDetected]
    unrouted = embed_photos(router.embedders["cat"], [wide], CenterSquare(), open_photo=open_in_memory).embeddings
    np.testing.assert_allclose(routed.by_species["cat"].embeddings, unrouted, atol=1e-6)


def test_each_bundle_crops_with_its_own_margin(mean_color_bundle: Path, tmp_path: Path):
    """The classifier gets the box alone; the cats' bundle gets a margin of half the box on each side too."""
    features = Embedder(mean_color_bundle)
    wider = replace(features.metadata, preprocessing=replace(features.metadata.preprocessing, margin=0.5))
    cat = Embedder(mosaic_bundle(tmp_path / "cat.onnx", wider, 32))
    router = RoutedEmbedder(features, color_classifier(), {"cat": cat})

    class CenterBox:
        def detect(self, photo: Photo) -> list[Face]:  # noqa: ARG002 - always there
            return [Face((40, 40, 80, 80), None, 1.0)]

    pixels = np.full((120, 120, 3), GREEN, np.uint8)
    pixels[40:80, 40:80] = RED
    framed = Photo(pixels, "framed", (120, 120))
    routed = router.embed_photos([framed], CenterBox(), open_photo=open_in_memory)
    unrouted = embed_photos(cat, [framed], CenterBox(), open_photo=open_in_memory).embeddings
    np.testing.assert_allclose(routed.by_species["cat"].embeddings, unrouted, atol=1e-6)
    assert unrouted.reshape(3, 2, 2)[1].min() > unrouted.reshape(3, 2, 2)[0].max()  # mostly green


def test_on_batch_reports_count_done(router: RoutedEmbedder):
    done: list[int] = []
    router.embed_photos(photos_of(*[RED] * 5), open_photo=open_in_memory, batch_size=2, on_batch=done.append)
    assert done == [2, 4, 5]


def test_rejects_classifier_for_other_bundle_and_unknown_species(router: RoutedEmbedder):
    with pytest.raises(SpaceMismatch, match="mosaic-cat"):
        RoutedEmbedder(router.embedders["cat"], router.classifier, {})
    with pytest.raises(ValueError, match="horse"):
        RoutedEmbedder(router.feature_embedder, router.classifier, {"horse": router.feature_embedder})


def test_verify_compares_only_photos_with_same_species(router: RoutedEmbedder, tmp_path: Path):
    def photo(name: str, rgb: tuple[int, int, int], seed: int = 0) -> Path:
        return save_colored(tmp_path / name, rgb, seed)

    red, other, green = photo("r.png", RED), photo("s.png", (180, 60, 20), 1), photo("g.png", GREEN)
    same = verify_routed(router, red, other)
    assert same.species == ("cat", "cat")
    assert same.verification == verify_photos(router.embedders["cat"], red, other)
    different = verify_routed(router, green, red)
    assert (different.species, different.verification) == (("dog", "cat"), None)
    assert min(different.probabilities) > 0.99
    with pytest.raises(UnsureSpecies, match=r"gray\.png"):
        verify_routed(router, red, photo("gray.png", GRAY))
    with pytest.raises(NoBundleForSpecies, match=r"blue\.png"):
        verify_routed(router, photo("blue.png", BLUE), red)
    with pytest.raises(UnreadablePhoto, match=r"gone\.png"):
        verify_routed(router, red, tmp_path / "gone.png")
    assert verify_routed(router, red, red).verification.similarity == pytest.approx(1.0)  # type: ignore[union-attr]


def test_verify_takes_chosen_faces(router: RoutedEmbedder, tmp_path: Path):
    class Halves:
        def detect(self, photo: Photo) -> list[Face]:
            width, height = photo.size_px
            return [Face((x, 0.0, x + width / 2, height), None, 0.9) for x in (width / 2, 0.0)]

    halves = [colored(rgb, "half", seed=seed).rgb_u8 for seed, rgb in enumerate((GREEN, RED))]
    pixels = np.concatenate(halves, axis=1)
    pair = save_photo(Photo(pixels, "pair", (pixels.shape[1], pixels.shape[0])), tmp_path / "pair.png")
    crops: list[Crop] = []
    best = verify_routed(router, pair, pair, Halves(), on_crop=crops.append)
    chosen = verify_routed(router, pair, pair, Halves(), faces=(1, 2), on_crop=crops.append)
    assert (best.species, chosen.species) == (("cat", "cat"), ("dog", "cat"))
    assert [(crop.face, crop.face_count) for crop in crops] == [(2, 2), (2, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize(("label", "species"), [("cat", "cat"), ("dog", "dog"), (None, "cat")])
def test_label_of_the_detector_decides_the_species(router: RoutedEmbedder, label: Label | None, species: str):
    """The classifier takes red for a cat, and decides where there is no label."""

    class Labeling:
        def detect(self, photo: Photo) -> list[Face]:
            width, height = photo.size_px
            return [Face((0.0, 0.0, width, height), None, 0.9, label=label)]

    routed = router.embed_photos(photos_of(RED), Labeling(), open_photo=open_in_memory)
    ((_, name, probability),) = routed.by_row()
    assert name == species
    assert (probability == 1.0) == (label is not None)
