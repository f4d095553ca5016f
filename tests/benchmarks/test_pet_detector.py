"""Tests of the detector of heads: its labels, scenes, targets, losses, network and file."""

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict

import cv2
import numpy as np
import onnxruntime as ort
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pet_detector import deploy, labels, scenes, teachers, training
from pet_detector.labels import Head, LabeledPhoto, draw_with_head, is_held_back
from pet_detector.network import LABELS, POINTS, Deployed, DetectorNetwork, Maps, to_maps
from pet_detector.scenes import SCENE_PX, Scene, Scenes, clipped, targets, turned_box, turned_points
from pet_detector.teachers import contains, middle, overlap
from torch import nn
from torch.nn.functional import max_pool2d

from familiar.datasets.synthetic import SyntheticPhoto
from familiar.detection.heads import NETWORK_FILE

SIZE = WIDTH_PX, HEIGHT_PX = 96, 64  # of small scenes: 12 x 8 cells
UNKNOWN = [math.nan, math.nan]
numbers = st.integers(-40, 140)


def boxes(low: int = 0, high: int = WIDTH_PX) -> st.SearchStrategy[list[float]]:
    """Draw boxes of whole pixels in a small scene, between two columns."""
    ranges = (st.integers(low, high), st.integers(0, HEIGHT_PX))
    sides = [st.lists(integers, min_size=2, max_size=2, unique=True) for integers in ranges]
    return st.tuples(*sides).map(lambda xy: np.sort(xy).T.ravel().astype(float).tolist())


points = st.none() | st.sampled_from([3, 5]).flatmap(
    lambda count: st.lists(st.sampled_from([UNKNOWN, [20.0, 30.0], [7.5, 1.0]]), min_size=count, max_size=count)
)
heads = st.builds(Head, st.sampled_from(LABELS), boxes(), points, st.none(), st.booleans())


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make_scene(*heads: Head, ignored: Sequence[list[float]] = ()) -> Scene:
    return Scene(np.zeros((HEIGHT_PX, WIDTH_PX, 3), np.uint8), list(heads), list(ignored))


def side_px(box: list[float]) -> float:
    return math.sqrt((box[2] - box[0]) * (box[3] - box[1]))


def pixels_in(box: list[float]) -> set[tuple[int, int]]:
    return {(x, y) for x in range(*map(int, box[::2])) for y in range(*map(int, box[1::2]))}


def box_tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)[..., None, None]


def test_tight_box_becomes_head(monkeypatch) -> None:
    monkeypatch.setattr(labels, "HEAD_OF_TIGHT", (0.1, -0.2, -0.3, 0.4))
    assert labels.head_of_tight([0, 0, 100, 200]) == pytest.approx([10, -40, 70, 280])
    assert labels.head_of_tight([10, 20, 60, 120]) == pytest.approx([15, 0, 45, 160])  # half as large, and moved


def test_one_photo_in_three_is_held_back() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926  # the published check value, which leaves 2
    assert not is_held_back("123456789")
    assert sum(is_held_back(f"pet_heads/{number}.jpg") for number in range(3000)) == pytest.approx(1000, abs=80)


def test_labels_are_read_as_written(tmp_path) -> None:
    head = Head("cat", [1.0, 2.0, 3.0, 4.0], [[1.5, 2.5]])
    photo = LabeledPhoto("a.jpg", "oxford", True, [head], [[0.0, 0.0, 1.0, 1.0]])
    (tmp_path / "labels.json").write_text(json.dumps([asdict(photo)]))
    assert labels.read_labels(tmp_path / "labels.json") == [photo]


def test_labels_of_each_source_are_made_once(monkeypatch, tmp_path) -> None:
    photo, calls = LabeledPhoto("a.jpg", "oxford", False), []
    for source in ("pet_heads", "other_animals", "drawn_pets", "small_cat_faces", "dog_faces", "people", "pet_photos"):
        monkeypatch.setattr(labels, source, lambda *_, source=source: calls.append(source) or iter([photo]))
    monkeypatch.setattr(labels, "Teachers", lambda _: None)
    assert labels.label_photos(tmp_path, tmp_path, tmp_path / "labels") == 7 * [photo]
    (tmp_path / "labels" / "people.json").unlink()
    calls.clear()
    assert labels.label_photos(tmp_path, tmp_path, tmp_path / "labels") == 7 * [photo]
    assert calls == ["people"]


def test_kept_dogs_are_not_labeled(tmp_path) -> None:
    set_aside = sorted(labels.kept_dogs())
    assert len(set_aside) == 150
    for folder in (set_aside[0], "dog_none"):
        (tmp_path / "dogfacenet900" / folder).mkdir(parents=True)
        cv2.imwrite(str(tmp_path / "dogfacenet900" / folder / "1.png"), np.zeros((100, 200, 3), np.uint8))

    class Blind:
        heads = staticmethod(lambda *_: [])
        landmarks = staticmethod(lambda *_: None)

    (labeled,) = labels.dog_faces(tmp_path, Blind())
    assert labeled.file == "dogfacenet900/dog_none/1.png"
    assert labeled.heads[0].box == pytest.approx([14, 5, 186, 84])


@pytest.mark.parametrize("difficulty", [0.0, 1.0])
@pytest.mark.parametrize(("species", "label"), [("cats", "cat"), ("dogs", "dog")])
def test_drawn_head_contains_its_landmarks(species, label, difficulty) -> None:
    for identity in range(4):
        photo = SyntheticPhoto(species, identity, 0, 5, difficulty, 128)
        rgb_u8, head = draw_with_head(photo, label)
        assert np.array_equal(rgb_u8, photo.draw().rgb_u8)
        assert draw_with_head(photo, label)[1] == head
        assert head.label == label
        assert clipped(np.array(head.box), (128, 128)) == (head.box, 1)
        assert all(contains(head.box, point) for point in head.points)
        left_eye, right_eye, nose = head.points
        assert left_eye[0] < right_eye[0]
        assert max(left_eye[1], right_eye[1]) < nose[1]


@given(boxes(), boxes())
def test_overlaps_match_numbers_of_pixels(first, second) -> None:
    both, union = (len(combine(*map(pixels_in, (first, second)))) for combine in (set.intersection, set.union))
    hull = len(pixels_in([*np.minimum(first, second)[:2], *np.maximum(first, second)[2:]]))
    assert overlap(first, second) == pytest.approx(both / union)
    expected = both / union - 1 + union / hull
    assert training.generalized_iou(box_tensor(first), box_tensor(second)).item() == pytest.approx(expected)
    assert overlap(first, [number + 200 for number in first]) == overlap([0, 0, 0, 0], [0, 0, 0, 0]) == 0
    assert contains(first, middle(first))
    assert not contains(first, (first[0] - 1, first[1]))


@given(st.lists(st.tuples(boxes(), st.integers(0, 9)), max_size=8))
def test_best_of_overlapping_boxes_remain(candidates) -> None:
    candidates = [teachers.Box(tuple(box), float(score), "cat") for box, score in candidates]
    best = teachers.suppress(candidates)
    assert [box.score for box in best] == sorted((box.score for box in best), reverse=True)
    for box in candidates:
        rivals = [
            other.score for other in best if other is not box and overlap(box.xyxy, other.xyxy) >= teachers.SAME_OVERLAP
        ]
        assert not rivals if any(box is other for other in best) else max(rivals) >= box.score


@given(boxes(), numbers)
def test_mirroring_twice_is_identity(box, shift) -> None:
    mirror, factors = np.array([[-1.0, 0, WIDTH_PX - 1], [0, 1.0, 0]]), np.ones(2)
    assert turned_box(turned_box(box, mirror, factors), mirror, factors).tolist() == box
    landmarks = [[float((shift + 17 * index) % WIDTH_PX), 5.0 * index] for index in range(5)]
    mirrored = turned_points(landmarks, mirror, SIZE, mirrored=True)
    assert mirrored[1] == [WIDTH_PX - 1 - landmarks[0][0], 0]  # the left eye has become the right one
    assert turned_points(mirrored, mirror, SIZE, mirrored=True) == landmarks
    inside = [[-0.1, 5], [0, 0], [WIDTH_PX, 5], [95.9, 63.9], [5, HEIGHT_PX]]
    moved = turned_points(inside, np.eye(2, 3), SIZE, mirrored=False)
    assert np.isnan(moved).all(1).tolist() == [True, False, True, False, True]


@given(boxes(), st.integers(1, 4))
def test_quarter_turn_moves_pixels_with_boxes_and_landmarks(box, turns) -> None:
    marked, (left, top, right, bottom) = np.zeros((HEIGHT_PX, WIDTH_PX, 3), np.uint8), map(int, box)
    marked[top:bottom, left:right] = 255
    corner = [[box[0], box[1]]]
    photo = LabeledPhoto("", "lfw", False, [Head("cat", box, corner)], [box])
    turned, pixels = scenes.quarter_turned(photo, marked, turns)
    rows, columns = pixels[..., 0].nonzero()
    expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert turned.heads[0].box == turned.ignored[0] == expected
    assert turned.heads[0].points[0] in [[x, y] for x in expected[::2] for y in expected[1::2]]
    if turns == 4:
        assert turned == photo
        assert np.array_equal(pixels, marked)


@given(numbers, numbers, numbers, numbers)
def test_clipped_box_lies_inside(left, right, top, bottom) -> None:
    (left, right), (top, bottom) = sorted([left, right]), sorted([top, bottom])
    inside, visible = clipped(np.array([left, top, right, bottom], float), SIZE)
    assert 0 <= inside[0] <= inside[2] <= WIDTH_PX
    assert 0 <= inside[1] <= inside[3] <= HEIGHT_PX
    pixels = [0 <= x < WIDTH_PX and 0 <= y < HEIGHT_PX for x, y in pixels_in([left, top, right, bottom])]
    assert visible == pytest.approx(sum(pixels) / max(len(pixels), 1))


@given(st.integers(0, 2**32 - 1))
def test_view_moves_pixels_with_boxes_and_landmarks(seed) -> None:
    """This photo's colors are the coordinates of its pixels, so that the color under a landmark tells its origin."""
    y, x = np.mgrid[:256, :256].astype(np.uint8)
    origin = np.array([[88, 100], [168, 100], [128, 160], [100, 170], [156, 170]], float)
    photo = LabeledPhoto("", "oxford", False, [Head("cat", [48, 48, 208, 208], origin.tolist())])
    scene = scenes.view(photo, np.dstack([x, y, y]), (200, 160), np.random.default_rng(seed))
    assert scene.rgb_u8.shape == (160, 200, 3)
    for head in scene.heads:
        landmarks = np.array(head.points, np.float32)
        known = ~np.isnan(landmarks[:, 0])
        assert all(contains(head.box, point) for point in landmarks[known])
        assert np.isnan(landmarks[:2]).any() or landmarks[0, 0] < landmarks[1, 0]
        columns, rows = landmarks[None].transpose(2, 0, 1)
        colors = cv2.remap(scene.rgb_u8.astype(np.float32), columns, rows, cv2.INTER_LINEAR, None, cv2.BORDER_REPLICATE)
        errors = [np.abs(colors[0, :, :2] - origin[order])[known] for order in ([0, 1, 2, 3, 4], [1, 0, 2, 4, 3])]
        assert min(error.max(initial=0) for error in errors) < 2 + 200 / (head.box[3] - head.box[1])


@pytest.mark.parametrize(("visible", "counts"), [(0.05, (0, 0)), (0.3, (0, 1)), (0.5, (1, 0)), (1.0, (1, 0))])
def test_barely_visible_head_is_ignored(monkeypatch, visible, counts) -> None:
    monkeypatch.setattr(scenes, "clipped", lambda box, _: (box.tolist(), visible))
    photo = LabeledPhoto("", "lfw", False, [Head("person", [1.0, 1.0, 9.0, 9.0])])
    scene = scenes.view(photo, np.zeros((20, 20, 3), np.uint8), (32, 32), np.random.default_rng(0))
    assert (len(scene.heads), len(scene.ignored)) == counts


def test_recolored_pixels_match_curve() -> None:
    """Where a photo is neither made gray, nor blurred, nor compressed."""
    seed = next(seed for seed in range(99) if min(np.random.default_rng(seed).random(3)) > 0.2)
    rng, rgb_u8 = np.random.default_rng(seed), np.arange(256 * 3).reshape(16, 16, 3).astype(np.uint8)
    rng.random(3)
    gamma, contrast, brightness = math.exp(rng.normal(0, 0.25)), math.exp(rng.normal(0, 0.2)), rng.normal(0, 0.07)
    tints, pixels = rng.normal(0, 0.04, 3), scenes.recolored(rgb_u8, np.random.default_rng(seed))
    for index, value in np.ndenumerate(rgb_u8):
        expected = ((value / 255) ** gamma - 0.5) * contrast + 0.5 + brightness + tints[index[2]]
        assert pixels[index] == pytest.approx(255 * min(max(expected, 0), 1), abs=1.001)


def test_held_back_photos_are_never_drawn(tmp_path) -> None:
    """A person's photo is held back, and there is no such file. Each scene depends on its index and seed alone."""
    photos = []
    for label, source in (("cat", "oxford"), ("person", "lfw"), ("dog", "oxford"), ("cat", "drawn")):
        head = Head(label, [10.0, 10.0, 50.0, 40.0], [[20.0, 20.0], [40.0, 20.0], [30.0, 30.0]])
        photos.append(LabeledPhoto(f"{len(photos)}.png", source, label == "person", [head], [[50.0, 40.0, 64.0, 48.0]]))
        if label != "person":
            cv2.imwrite(str(tmp_path / photos[-1].file), np.full((48, 64, 3), 60 * len(photos), np.uint8))
    data = Scenes(tmp_path, photos, 30, 7)
    assert [photo.file for photo in data.photos] == ["0.png", "2.png", "3.png"]
    drawn = np.array([scenes.DRAWN["oxford"], scenes.DRAWN["oxford"] * scenes.DOGS_DRAWN, scenes.DRAWN["drawn"]])
    np.testing.assert_allclose(data.shares, drawn / drawn.sum())
    seen = [head for index in range(len(data)) for head in data.scene(index).heads]
    assert {head.label for head in seen} == {"cat", "dog"}
    for head in seen:
        assert clipped(np.array(head.box), (SCENE_PX, SCENE_PX)) == (head.box, 1)
        assert all(contains(head.box, point) for point in head.points if not math.isnan(point[0]))
    for index in (29, 3):
        tensors, expected = data[index], targets(Scenes(tmp_path, photos, 30, 7).scene(index))
        assert all(np.array_equal(tensor, array) for tensor, array in zip(tensors[1:], expected, strict=True))
        assert torch.equal(tensors[0], data[index][0])
        others = data[index + 1], Scenes(tmp_path, photos, 30)[index]
        assert not any(torch.equal(tensors[0], other[0]) for other in others)


@pytest.mark.parametrize("at_last", [False, True])
def test_joined_tiles_cover_scene(monkeypatch, tmp_path, at_last) -> None:
    """Each tile has a color of its own, a head as large as it, and an ignored box as large."""

    def tile(_photo, _pixels, size, rng, zoomed):
        assert zoomed == (scenes.ZOOMED_AT_LAST if at_last else scenes.ZOOMED)
        box = [0.0, 0.0, *map(float, size)]
        rgb_u8 = np.full((*size[::-1], 3), rng.integers(256, size=3), np.uint8)
        return Scene(rgb_u8, [Head("cat", box, [box[:2], UNKNOWN, box[2:]])], [box])

    monkeypatch.setattr(scenes, "view", tile)
    monkeypatch.setattr(scenes, "recolored", lambda pixels, _: pixels)
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((8, 8, 3), np.uint8))
    data = Scenes(tmp_path, [LabeledPhoto("a.png", "orl", False)], 1, at_last=at_last)
    tiles = [data.scene(index) for index in range(60)]
    assert {len(scene.heads) for scene in tiles} == {1, 4}
    share = scenes.JOINED_AT_LAST if at_last else scenes.JOINED
    assert sum(len(scene.heads) == 4 for scene in tiles) == pytest.approx(60 * share, abs=11)  # 3 standard deviations
    for scene in tiles:
        assert scene.ignored == [head.box for head in scene.heads]
        for head in scene.heads:
            left, top, right, bottom = map(int, head.box)
            assert not np.ptp(scene.rgb_u8[top:bottom, left:right], axis=(0, 1)).any()
            np.testing.assert_array_equal(head.points, [[left, top], UNKNOWN, [right, bottom]])
        assert sum(side_px(head.box) ** 2 for head in scene.heads) == pytest.approx(SCENE_PX**2)


def slow_targets(scene: Scene) -> list[np.ndarray]:
    """Compute targets cell by cell: around a head's middle a normal distribution, cut off at three sigmas."""
    heat, counted, boxes_px, box_weights, points, point_weights = (np.zeros((n, 8, 12)) for n in (3, 1, 4, 1, 10, 10))
    uncounted = [*scene.ignored, *(head.box for head in scene.heads if not head.counts_as_head)]
    corners = [[round(value / 8) for value in box] for box in uncounted]
    for row, column in np.ndindex(8, 12):
        counted[0, row, column] = not any(x <= column <= right and y <= row <= low for x, y, right, low in corners)
    for head in sorted(scene.heads, key=lambda head: -(side_px(head.box) ** 2)):
        x, y = (int(value / 8) for value in middle(head.box))
        reach_x, reach_y = (int(scenes.SPREAD * (head.box[2 + axis] - head.box[axis]) / 16) for axis in (0, 1))
        near = {
            (row, column): math.exp(-4.5 * (((row - y) / (reach_y + 0.5)) ** 2 + ((column - x) / (reach_x + 0.5)) ** 2))
            for row, column in np.ndindex(8, 12)
            if abs(row - y) <= reach_y and abs(column - x) <= reach_x
        }
        values = np.ravel(head.points or [])
        known = ~np.isnan(values)
        for (row, column), value in near.items():
            weight = value / sum(near.values())
            if head.counts_as_head:
                label = LABELS.index(head.label)
                heat[label, row, column] = max(heat[label, row, column], value)
                counted[0, row, column], boxes_px[:, row, column] = 1, head.box
            box_weights[0, row, column] = weight if head.counts_as_head else 0
            points[: len(values), row, column] = np.nan_to_num(values)
            point_weights[:, row, column] = 0
            point_weights[: len(values), row, column] = known * weight / side_px(head.box) / max(known.sum(), 1)
    return [heat, counted[0], boxes_px, box_weights[0], points, point_weights]


@given(st.lists(heads, min_size=2, max_size=5), st.lists(boxes(), max_size=2))
def test_targets_match_slow_reference(heads, ignored) -> None:
    scene = make_scene(*heads, ignored=ignored)
    for array, expected in zip(targets(scene), slow_targets(scene), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-6)


@given(boxes(high=40), boxes(low=48), st.lists(boxes(), max_size=3))
def test_heads_weigh_the_same_and_count_where_ignored(first, second, ignored) -> None:
    """Two heads of different labels that are apart, in boxes where nothing else is learned."""
    ignored = [first, second, *ignored]
    scene = make_scene(Head("cat", first, [UNKNOWN, [1.0, 2.0]]), Head("person", second), ignored=ignored)
    heat, counted, boxes_px, box_weights, _, point_weights = targets(scene)
    for box, label, columns in ((first, 0, slice(0, 6)), (second, 2, slice(6, 12))):
        x, y = (int(value / 8) for value in middle(box))
        assert np.argwhere(heat[label] == 1).tolist() == [[y, x]]
        assert boxes_px[:, y, x].tolist() == box
        assert box_weights[:, columns].sum() == pytest.approx(1, abs=1e-5)
    assert not heat[1].any()
    assert np.array_equal(counted, np.where(heat.any(0), 1, targets(make_scene(ignored=ignored))[1]))
    assert point_weights.sum() * side_px(first) == pytest.approx(1, abs=1e-5)


def test_targets_of_extreme_heads() -> None:
    heat, counted, *others = targets(make_scene())
    assert counted.all()
    assert not any(array.any() for array in (heat, *others))
    whole, pixel, corner = [0.0, 0.0, 96.0, 64.0], [17.0, 9.0, 18.0, 10.0], [95.0, 63.0, 96.0, 64.0]
    for box, cells in ((whole, 7 * 5), (pixel, 1), (corner, 1)):
        heat, _, _, weights, _, _ = targets(make_scene(Head("dog", box)))
        assert ((heat > 0).sum(), (heat == 1).sum(), (weights > 0).sum()) == (cells, 1, cells)
    large, small = Head("cat", [0.0, 0.0, 64.0, 48.0], [[9.0, 9.0]]), Head("dog", [24.0, 16.0, 32.0, 24.0])
    for order in ((large, small), (small, large)):
        heat, _, boxes_px, weights, _, point_weights = targets(make_scene(*order, Head("cat", corner)))
        assert point_weights[:2, 3, 4].all()
        assert not point_weights[:, 2, 3].any()
        assert heat[0, 7, 11] == 1
        assert boxes_px[:, 2, 3].tolist() == small.box
        assert weights[2, 3] == 1
        assert boxes_px[:, 3, 4].tolist() == large.box
        assert 0 < heat[0, 2, 3] < heat[0, 3, 4] == heat[1, 2, 3] == 1


def test_focal_loss_matches_slow_reference() -> None:
    logits, heat, counted = 3 * randn(2, 3, 4, 5), randn(2, 3, 4, 5, seed=1).sigmoid(), randn(2, 1, 4, 5, seed=2) > 0
    heat[heat > 0.8] = 1
    expected = 0.0
    for image, label, row, column in np.ndindex(2, 3, 4, 5):
        p, value = 1 / (1 + math.exp(-logits[image, label, row, column])), heat[image, label, row, column].item()
        loss = (1 - p) ** 2 * math.log(p) if value == 1 else (1 - value) ** 4 * p**2 * math.log(1 - p)
        expected -= loss * counted[image, 0, row, column].item()
    assert training.focal_loss(logits, heat, counted.float()).item() == pytest.approx(expected, rel=1e-5)


FOCAL = [(0, 1, math.log(2) / 4), (0, 0, math.log(2) / 4), (0, 0.5, math.log(2) / 64)]
EXTREME_FOCAL = [(50, 1, 0), (-50, 0, 0), (-50, 1, 50), (50, 0, 50), (50, 0.5, 50 / 16)]


@pytest.mark.parametrize(("logit", "heat", "expected"), [*FOCAL, *EXTREME_FOCAL])
def test_focal_loss_of_one_cell(logit, heat, expected) -> None:
    logit, heat = (torch.full((1, 1, 1, 1), float(value)) for value in (logit, heat))
    loss = training.focal_loss(logit.requires_grad_(), heat, torch.ones(1, 1, 1, 1))
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-12)
    assert logit.grad.isfinite().all()
    assert training.focal_loss(logit, heat, torch.zeros(1, 1, 1, 1)) == 0


SQUARE = [0, 0, 4, 4]
FAR = ([4e6, 0, 4e6 + 4, 4], -1 + 32 / (4e6 * 4 + 16))
TOUCHING = [(SQUARE, 1), ([4, 0, 8, 4], 0), ([2, 0, 6, 4], 1 / 3), ([1, 1, 3, 3], 1 / 4), ([2, 2, 2, 2], 0)]


@pytest.mark.parametrize(("box", "expected"), [*TOUCHING, ([4, 4, 8, 8], -1 / 2), ([8, 0, 12, 4], -1 / 3), FAR])
def test_generalized_iou_with_square(box, expected) -> None:
    for pair in ((box, SQUARE), (SQUARE, box)):
        assert training.generalized_iou(*map(box_tensor, pair)).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (50.0, 9.0)])  # boxes that overlap, and that are apart
def test_gradients_of_losses(scale, shift) -> None:
    logits, heat = scale * randn(1, 2, 3, 3, dtype=torch.float64), randn(1, 2, 3, 3, seed=1).double().sigmoid()
    heat[0, 0, 0], counted = 1, torch.ones(1, 1, 3, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda logits: training.focal_loss(logits, heat, counted), logits.requires_grad_())
    first = box_tensor([0, 0, 5, 4], [1.1, 2.3, 6.2, 3.9]).requires_grad_()
    second = (box_tensor([2, 1, 7, 3], [0.4, 0.2, 8.1, 3.1]) + shift).requires_grad_()
    assert torch.autograd.gradcheck(training.generalized_iou, (first, second))


def test_losses_are_means_over_heads() -> None:
    """Boxes half of their width off, landmarks 2 px off; an empty scene has no loss but that of labels."""
    boxes_px = [[16.0, 16.0, 48.0, 32.0], [40.0, 8.0, 72.0, 56.0]]
    heads = [Head("cat", box, [[*middle(box)], UNKNOWN, [*box[:2]]]) for box in boxes_px]
    all_targets = [targets(make_scene(head, ignored=[[0.0, 0.0, 40.0, 40.0]])) for head in heads]
    expected = [torch.from_numpy(np.stack(arrays)) for arrays in zip(*all_targets, strict=True)]
    shifted = expected[2] + torch.tensor([16.0, 0, 16, 0])[:, None, None]
    maps = Maps(randn(2, 3, 8, 12), shifted, (expected[4] + 2).unflatten(1, (POINTS, 2)))
    losses = [loss.item() for loss in training.detection_losses(maps, *expected)]
    focal = training.focal_loss(maps.logits, expected[0], expected[1][:, None]).item() / 2
    off = np.mean([2 / side_px(box) for box in boxes_px])
    assert losses == pytest.approx([focal, training.BOX_WEIGHT * (1 - 1 / 3), training.POINT_WEIGHT * off], rel=1e-5)
    values = randn(1, 17, 8, 12).requires_grad_()
    nothing = [torch.from_numpy(array)[None] for array in targets(make_scene())]
    losses = training.detection_losses(to_maps(values), *nothing)
    sum(losses).backward()
    assert [loss.item() > 0 for loss in losses] == [True, False, False]
    assert values.grad.isfinite().all()
    assert not values.grad[:, 3:].any()


def test_learning_rate_rises_and_falls() -> None:
    rise = training.WARM_UP_STEPS
    rates = [training.rate(step, 10 * rise) for step in range(20 * rise)]
    assert rates[0] == 1 / rise
    assert rates[5 * rise] == pytest.approx(1 / 2)
    assert rates[10 * rise :] == [0] * 10 * rise
    assert np.argmax(rates) == rise - 1
    assert all(np.diff(rates[rise : 10 * rise]) < 0)


class FewScenes(torch.utils.data.Dataset):
    """Six scenes of random pixels with a cat in the middle."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        pixels = torch.randint(0, 256, (64, 96, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(index))
        return pixels, *map(torch.from_numpy, targets(make_scene(Head("cat", [20.0, 10.0, 70.0, 50.0]))))


def test_interrupted_training_goes_on(monkeypatch, tmp_path) -> None:
    """Its weights are those of a training that was not interrupted."""
    monkeypatch.setattr(training, "BATCH", 2)
    monkeypatch.setattr(training, "STATE_STEPS", 1)

    def train(file: str) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        return training.train(DetectorNetwork(), FewScenes(), tmp_path / file, workers=0).state_dict()

    class PowerCut(Exception):
        pass

    def cut(step: int, steps: int, rate=training.rate) -> float:
        if step == 2:
            raise PowerCut
        return rate(step, steps)

    expected = train("whole.pt")
    with monkeypatch.context() as patch:
        patch.setattr(training, "rate", cut)
        with pytest.raises(PowerCut):
            train("state.pt")
    assert torch.load(tmp_path / "state.pt")["done"] == 1
    for name, tensor in train("state.pt").items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)


@torch.no_grad()
def test_network_of_file_computes_as_file_does(monkeypatch) -> None:
    """So that its training can go on; its batch norms have statistics again."""
    monkeypatch.setattr(training, "statistics_images", lambda _: [training.standardized(random_photo(2, 64, 64))])
    network = training.read_network(NETWORK_FILE, FewScenes())
    photo_u8 = random_photo(1, 128, 160)
    outputs = ort.InferenceSession(NETWORK_FILE).run(None, {"photo": photo_u8.numpy()})
    for array, tensor in zip(outputs, Deployed(network.eval())(photo_u8), strict=True):
        np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-4, atol=1e-3)
    assert all(norm.running_var.std() > 0 for norm in network.modules() if isinstance(norm, nn.BatchNorm2d))


def test_average_follows_network() -> None:
    average, *networks = (nn.BatchNorm1d(3) for _ in range(5))
    for step, network in enumerate(networks, 1):
        network(randn(5, 3, seed=step) + step)
        nn.init.constant_(network.weight, step)
        training.follow(average, network, 1 / step)
    for name in ("weight", "running_mean", "running_var"):
        torch.testing.assert_close(getattr(average, name), sum(getattr(each, name) for each in networks) / 4)
    assert average.num_batches_tracked == 1


@torch.no_grad()
def test_maps_match_slow_reference_and_only_peaks_have_scores(monkeypatch) -> None:
    values, seen = 50 * randn(1, 17, 6, 7), []
    network = nn.Module()
    monkeypatch.setattr(network, "values", lambda images: seen.append(images) or values, raising=False)
    photo_u8 = torch.randint(0, 256, (1, 48, 56, 3), dtype=torch.uint8)
    boxes_px, scores, landmarks = Deployed(network)(photo_u8)
    torch.testing.assert_close(seen[0], training.standardized(photo_u8))
    torch.testing.assert_close(seen[0][0, :, 5, 6], photo_u8[0, 5, 6] / 127.5 - 1)
    best = values[0, :3].amax(0)
    for index, (row, column) in enumerate(np.ndindex(6, 7)):
        x, y, channels = 8 * column + 4, 8 * row + 4, values[0, :, row, column].tolist()
        sides = [16 * math.exp(min(value, 4)) for value in channels[3:7]]
        expected = [x - sides[0], y - sides[1], x + sides[2], y + sides[3]]
        assert boxes_px[index].tolist() == pytest.approx(expected, rel=1e-5)
        expected = [[x + 32 * right, y + 32 * down] for right, down in zip(channels[7::2], channels[8::2], strict=True)]
        np.testing.assert_allclose(landmarks[index], expected, rtol=1e-5, atol=1e-3)
        is_peak = best[row, column] == best[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2].max()
        torch.testing.assert_close(scores[index], values[0, :3, row, column].sigmoid() * is_peak)


THRESHOLDS = {"cat": 0.6, "dog": 0.3, "person": 0.15}


def random_photo(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, (*shape, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def random_network() -> DetectorNetwork:
    """Build a network whose maps vary, but that gives dogs the probability of their threshold everywhere."""
    torch.manual_seed(0)
    network = DetectorNetwork()
    assert network.eval()(torch.zeros(1, 3, 64, 96)).logits.sigmoid().numpy() == pytest.approx(0.01, abs=2e-3)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the statistics become those of the next batch
    network.train()(training.standardized(random_photo(4, 128, 128)))
    network.top.weight *= torch.tensor([30, 0, 30, *[10] * 14])[:, None, None, None]
    network.top.bias[:3] = torch.tensor([0.5, THRESHOLDS["dog"], 0.2]).logit()
    return network.eval()


@pytest.mark.exhaustive
@pytest.mark.slow
@torch.no_grad()
def test_file_agrees_with_network(monkeypatch) -> None:
    """Before its weights are rounded it does exactly; a score is .5 where the probability is the threshold."""
    network, float_files, export = random_network(), [], deploy.to_onnx

    def export_twice(*arguments):
        model = export(*arguments)
        float_files.append(model.SerializeToString())
        return model

    monkeypatch.setattr(deploy, "to_onnx", export_twice)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    images = training.standardized(random_photo(32, 96, 96)).numpy()
    file = deploy.deploy(network, THRESHOLDS, images)
    assert len(file) < 2_000_000
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    odds = torch.tensor([THRESHOLDS[label] / (1 - THRESHOLDS[label]) for label in LABELS])[:, None, None]
    for height, width in ((64, 96), (160, 128)):
        photo_u8 = random_photo(1, height, width)
        maps = network(training.standardized(photo_u8))
        relative = maps.logits[0].exp() / odds
        scores = relative / (1 + relative)
        best = scores.amax(0, keepdim=True)
        is_peak = (max_pool2d(best, 3, 1, 1) == best).flatten()
        points = maps.points_px[0].flatten(2).permute(2, 0, 1)
        expected = maps.boxes_xyxy_px[0].flatten(1).T, scores.flatten(1).T, points
        for model, score_limit, limit_px, same_peaks in ((float_files[0], 1e-5, 1e-3, 1.0), (file, 0.25, 18.0, 0.7)):
            outputs = ort.InferenceSession(model).run(None, {"photo": photo_u8.numpy()})
            errors = [np.abs(array - tensor.numpy()) for array, tensor in zip(outputs, expected, strict=True)]
            peaks = outputs[1].any(1)
            assert (peaks == is_peak.numpy()).mean() >= same_peaks
            assert (outputs[1][peaks, 1] == 0.5).all()
            assert errors[1][peaks].mean(0).max() < score_limit
            assert max(errors[0].mean(), errors[2].mean()) < limit_px  # they vary by some 50 px
