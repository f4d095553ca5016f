"""Tests of the training of the detector of heads: labels, scenes, targets, losses, network and its file."""

import json
import math
import zlib
from dataclasses import asdict

import cv2
import numpy as np
import onnxruntime as ort
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pet_detector.deploy import deploy
from pet_detector.labels import Head, LabeledPhoto, draw_with_head, head_of_tight, is_held_back, read_labels
from pet_detector.network import LABELS, POINTS, STRIDE_PX, Deployed, DetectorNetwork, Maps, to_maps
from pet_detector.scenes import SCENE_PX, Scene, Scenes, clipped, recolored, targets, turned_box, turned_points, view
from pet_detector.teachers import Box, contains, middle, overlap, suppress
from pet_detector.training import (
    BOX_WEIGHT,
    WARM_UP_STEPS,
    detection_losses,
    focal_loss,
    follow,
    generalized_iou,
    rate,
    standardized,
)
from torch import nn

from familiar.datasets.synthetic import SyntheticPhoto

WIDTH_PX, HEIGHT_PX = 96, 64  # of small scenes
THRESHOLDS = {"cat": 0.6, "dog": 0.3, "person": 0.15}
whole_numbers, seeds = st.integers(-40, 140), st.integers(0, 2**32 - 1)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def empty_scene(width: int = WIDTH_PX, height: int = HEIGHT_PX) -> Scene:
    return Scene(np.zeros((height, width, 3), np.uint8))


def target_tensors(*scenes: Scene) -> list[torch.Tensor]:
    return [torch.from_numpy(np.stack(arrays)) for arrays in zip(*map(targets, scenes), strict=True)]


@st.composite
def boxes(draw: st.DrawFn, left: int = 0, right: int = WIDTH_PX) -> list[float]:
    """Draw a box of whole pixels in a small scene, between two columns."""
    x = sorted(draw(st.lists(st.integers(left, right), min_size=2, max_size=2, unique=True)))
    y = sorted(draw(st.lists(st.integers(0, HEIGHT_PX), min_size=2, max_size=2, unique=True)))
    return [float(x[0]), float(y[0]), float(x[1]), float(y[1])]


@st.composite
def heads(draw: st.DrawFn) -> Head:
    box = draw(boxes())
    points = [
        [math.nan, math.nan] if draw(st.booleans()) else [*middle(box)] for _ in range(draw(st.sampled_from([3, 5])))
    ]
    return Head(
        draw(st.sampled_from(LABELS)), box, draw(st.sampled_from([None, points])), counts_as_head=draw(st.booleans())
    )


# Labels and teachers


def test_box_of_head_of_tight_box() -> None:
    assert head_of_tight([0, 0, 100, 200]) == pytest.approx([0.8, -23.4, 98.8, 190.4])
    assert head_of_tight([10, 20, 60, 120]) == pytest.approx([10.4, 8.3, 59.4, 115.2])  # half as large, and moved


def test_one_photo_in_three_is_held_back() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926  # the algorithm's published check value
    assert not is_held_back("123456789")  # ... which leaves 2
    assert sum(is_held_back(f"pet_heads/{number}.jpg") for number in range(3000)) == pytest.approx(1000, abs=80)


def test_labels_are_read_as_written(tmp_path) -> None:
    photo = LabeledPhoto(
        "a.jpg", "oxford", True, [Head("cat", [1.0, 2.0, 3.0, 4.0], [[1.5, 2.5]])], [[0.0, 0.0, 1.0, 1.0]]
    )
    (tmp_path / "labels.json").write_text(json.dumps([asdict(photo)]))
    assert read_labels(tmp_path / "labels.json") == [photo]


@pytest.mark.parametrize(("species", "label"), [("cats", "cat"), ("dogs", "dog")])
@pytest.mark.parametrize("difficulty", [0.0, 1.0])
def test_drawn_head_contains_its_landmarks(species, label, difficulty) -> None:
    for identity in range(4):
        photo = SyntheticPhoto(species, identity, 0, 5, difficulty, 128)
        rgb_u8, head = draw_with_head(photo, label)
        assert np.array_equal(rgb_u8, photo.draw().rgb_u8)
        assert draw_with_head(photo, label)[1] == head
        assert head.label == label
        assert clipped(np.array(head.box), (128, 128)) == (head.box, 1)
        left_eye, right_eye, nose = head.points
        assert all(contains(head.box, point) for point in head.points)
        assert left_eye[0] < nose[0] < right_eye[0] or difficulty == 1
        assert left_eye[0] < right_eye[0]
        assert max(left_eye[1], right_eye[1]) < nose[1]


@given(boxes(), boxes())
def test_overlap_matches_number_of_common_pixels(first, second) -> None:
    pixels = [
        {(x, y) for x in range(*map(int, box[::2])) for y in range(*map(int, box[1::2]))} for box in (first, second)
    ]
    assert overlap(first, second) == pytest.approx(len(pixels[0] & pixels[1]) / len(pixels[0] | pixels[1]))
    assert overlap(first, first) == 1
    assert contains(first, middle(first))
    assert overlap(first, [x + 200 for x in first]) == 0
    assert overlap([0, 0, 0, 0], [0, 0, 0, 0]) == 0


@given(st.lists(st.tuples(boxes(), st.integers(0, 1000)), max_size=8))
def test_best_of_overlapping_boxes_remain(candidates) -> None:
    candidates = [Box(tuple(box), score / 1000, "cat") for box, score in candidates]
    best = suppress(candidates)
    assert [box.score for box in best] == sorted((box.score for box in best), reverse=True)
    for box in candidates:
        rivals = [other for other in best if other is not box and overlap(box.xyxy, other.xyxy) >= 0.5]
        if any(box is other for other in best):
            assert not rivals
        else:
            assert max(other.score for other in rivals) >= box.score


# Scenes


@given(boxes(), whole_numbers)
def test_mirroring_twice_is_identity(box, shift) -> None:
    mirror, size = np.array([[-1.0, 0, WIDTH_PX - 1], [0, 1.0, 0]]), (WIDTH_PX, HEIGHT_PX)
    factors = np.ones(2)
    assert turned_box(turned_box(box, mirror, factors), mirror, factors).tolist() == box
    points = [[float((shift + 17 * number) % WIDTH_PX), 5.0 * number] for number in range(5)]
    mirrored = turned_points(points, mirror, size, mirrored=True)
    assert mirrored[1] == [WIDTH_PX - 1 - points[0][0], 0]
    assert turned_points(mirrored, mirror, size, mirrored=True) == points


def test_landmarks_outside_are_unknown() -> None:
    points = [[-0.1, 5], [0, 0], [WIDTH_PX, 5], [95.9, 63.9], [5, 64]]
    moved = turned_points(points, np.eye(2, 3), (WIDTH_PX, HEIGHT_PX), mirrored=False)
    assert np.isnan(moved).tolist() == [[True] * 2, [False] * 2, [True] * 2, [False] * 2, [True] * 2]


@given(st.tuples(*[whole_numbers] * 4))
def test_clipped_box_lies_inside(corners) -> None:
    x, y = sorted(corners[:2]), sorted(corners[2:])
    inside, visible = clipped(np.array([x[0], y[0], x[1], y[1]], float), (WIDTH_PX, HEIGHT_PX))
    assert 0 <= inside[0] <= inside[2] <= WIDTH_PX
    assert 0 <= inside[1] <= inside[3] <= HEIGHT_PX
    pixels = [(column, row) for column in range(*x) for row in range(*y)]
    shown = sum(0 <= column < WIDTH_PX and 0 <= row < HEIGHT_PX for column, row in pixels)
    assert visible == pytest.approx(shown / max(len(pixels), 1))


@given(seeds)
def test_view_moves_pixels_boxes_and_landmarks_alike(seed) -> None:
    """The colors of this photo are the coordinates of its pixels, so that each landmark's color tells where it was."""
    rows, columns = np.mgrid[:256, :256].astype(np.uint8)
    source = np.array([[88, 100], [168, 100], [128, 160], [100, 170], [156, 170]], float)
    photo = LabeledPhoto("", "oxford", False, [Head("cat", [48, 48, 208, 208], source.tolist())])
    scene = view(photo, np.dstack([columns, rows, rows]), (200, 160), np.random.default_rng(seed))
    assert scene.rgb_u8.shape == (160, 200, 3)
    for head in scene.heads:
        points = np.array(head.points, np.float32)
        known = ~np.isnan(points[:, 0])
        assert all(contains(head.box, point) for point in points[known])
        assert np.isnan(points[:2]).any() or points[0, 0] < points[1, 0]
        pixels = scene.rgb_u8.astype(np.float32)
        colors = cv2.remap(pixels, *points[None].transpose(2, 0, 1), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        errors = [np.abs(colors[0, :, :2] - source[order])[known] for order in ([0, 1, 2, 3, 4], [1, 0, 2, 4, 3])]
        assert min(error.max(initial=0) for error in errors) < 2 + 200 / (head.box[3] - head.box[1])


@pytest.mark.parametrize(("visible", "heads_seen", "ignored"), [(0.05, 0, 0), (0.3, 0, 1), (0.5, 1, 0), (1.0, 1, 0)])
def test_head_that_is_barely_visible_is_ignored(monkeypatch, visible, heads_seen, ignored) -> None:
    monkeypatch.setattr("pet_detector.scenes.clipped", lambda box, _: (box.tolist(), visible))
    photo = LabeledPhoto("", "lfw", False, [Head("person", [1.0, 1.0, 9.0, 9.0])])
    scene = view(photo, np.zeros((20, 20, 3), np.uint8), (32, 32), np.random.default_rng(0))
    assert (len(scene.heads), len(scene.ignored)) == (heads_seen, ignored)


@pytest.fixture
def scenes(tmp_path) -> Scenes:
    """Two cats' photos and a person's; a dog's is held back, and there is no such file."""
    photos = []
    for number, (label, source) in enumerate(
        [("cat", "oxford"), ("dog", "oxford"), ("cat", "drawn"), ("person", "lfw")]
    ):
        points = [[20.0, 20.0], [40.0, 20.0], [30.0, 30.0]]
        head = Head(label, [10.0, 10.0, 50.0, 40.0], points)
        photos.append(LabeledPhoto(f"{number}.png", source, label == "dog", [head], [[50.0, 40.0, 64.0, 48.0]]))
        if label != "dog":
            cv2.imwrite(str(tmp_path / f"{number}.png"), np.full((48, 64, 3), 60 * number, np.uint8))
    return Scenes(tmp_path, photos, 30, 7)


def test_held_back_photos_are_never_drawn(scenes) -> None:
    assert [photo.file for photo in scenes.photos] == ["0.png", "2.png", "3.png"]
    np.testing.assert_allclose(scenes.shares, np.array([3.0, 0.4, 0.4]) / 3.8)
    labels = {head.label for index in range(len(scenes)) for head in scenes.scene(index).heads}
    assert labels == {"cat", "person"}


def test_scene_depends_on_index_and_seed_alone(scenes) -> None:
    for index in (29, 3, 0):
        tensors, again = scenes[index], scenes[index]
        assert all(torch.equal(tensor, same) for tensor, same in zip(tensors, again, strict=True))
        assert not torch.equal(tensors[0], scenes[index + 1][0])
    for index in range(len(scenes)):
        for head in scenes.scene(index).heads:
            assert clipped(np.array(head.box), (SCENE_PX, SCENE_PX)) == (head.box, 1)
            assert all(contains(head.box, point) for point in head.points if not math.isnan(point[0]))


def test_recolored_pixels_match_curve() -> None:
    """Where a photo is neither made gray, nor blurred, nor compressed."""
    seed = next(seed for seed in range(9) if min(np.random.default_rng(seed).random(3)) > 0.2)
    rng, rgb_u8 = np.random.default_rng(seed), np.arange(256 * 3).reshape(16, 16, 3).astype(np.uint8)
    rng.random(3)
    gamma, contrast, brightness = math.exp(rng.normal(0, 0.25)), math.exp(rng.normal(0, 0.2)), rng.normal(0, 0.07)
    tints, pixels = rng.normal(0, 0.04, 3), recolored(rgb_u8, np.random.default_rng(seed))
    for before, after in zip(rgb_u8.reshape(-1, 3).tolist(), pixels.reshape(-1, 3).tolist(), strict=True):
        for value, tint, changed in zip(before, tints, after, strict=True):
            expected = ((value / 255) ** gamma - 0.5) * contrast + 0.5 + brightness + tint
            assert changed == pytest.approx(255 * min(max(expected, 0), 1), abs=1.001)


# Targets


def slow_targets(scene: Scene) -> list[np.ndarray]:
    """Compute targets cell by cell: near a head's middle, a normal distribution of which three sigmas are reached."""
    height, width = scene.rgb_u8.shape[0] // STRIDE_PX, scene.rgb_u8.shape[1] // STRIDE_PX
    arrays = [np.zeros((count, height, width)) for count in (3, 1, 4, 1, 10, 10)]
    heat, counted, targets_px, box_weights, points, point_weights = arrays
    cells = [(row, column) for row in range(height) for column in range(width)]
    uncounted = [*scene.ignored, *(head.box for head in scene.heads if not head.counts_as_head)]
    for row, column in cells:
        corners = [[round(value / 8) for value in box] for box in uncounted]
        counted[0, row, column] = not any(x <= column <= right and y <= row <= low for x, y, right, low in corners)
    for head in sorted(scene.heads, key=lambda head: -(size_px(head.box) ** 2)):
        x, y = (int(value / 8) for value in middle(head.box))
        reach_x, reach_y = (int(0.54 * (head.box[2 + axis] - head.box[axis]) / 16) for axis in (0, 1))
        near = {
            (row, column): math.exp(-4.5 * (((row - y) / (reach_y + 0.5)) ** 2 + ((column - x) / (reach_x + 0.5)) ** 2))
            for row, column in cells
            if abs(row - y) <= reach_y and abs(column - x) <= reach_x
        }
        numbers = np.ravel(head.points or [])
        known = ~np.isnan(numbers)
        for (row, column), value in near.items():
            weight = value / sum(near.values())
            if head.counts_as_head:
                label = LABELS.index(head.label)
                heat[label, row, column] = max(heat[label, row, column], value)
                counted[0, row, column], targets_px[:, row, column] = 1, head.box
            box_weights[0, row, column] = weight if head.counts_as_head else 0
            points[: len(numbers), row, column] = np.nan_to_num(numbers)
            point_weights[:, row, column] = 0
            point_weights[: len(numbers), row, column] = known * weight / size_px(head.box) / max(known.sum(), 1)
    return [heat, counted[0], targets_px, box_weights[0], points, point_weights]


def size_px(box: list[float]) -> float:
    return math.sqrt((box[2] - box[0]) * (box[3] - box[1]))


@given(st.lists(heads(), max_size=4), st.lists(boxes(), max_size=2))
def test_targets_match_slow_reference(heads, ignored) -> None:
    scene = Scene(empty_scene().rgb_u8, heads, ignored)
    for array, expected in zip(targets(scene), slow_targets(scene), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-6)


@given(boxes(right=40), boxes(left=48), boxes(), boxes())
def test_visible_heads_weigh_the_same_and_count_where_ignored(first, second, *ignored) -> None:
    """Two heads that are apart, of different labels, in boxes where nothing else is learned."""
    scene = empty_scene()
    scene.heads, scene.ignored = [Head("cat", first, [[1.0, 2.0]]), Head("person", second)], [first, second, *ignored]
    heat, counted, targets_px, box_weights, _, point_weights = targets(scene)
    for box, label, columns in ((first, 0, slice(0, 6)), (second, 2, slice(6, 12))):
        x, y = (int(value / STRIDE_PX) for value in middle(box))
        assert np.argwhere(heat[label] == 1).tolist() == [[y, x]]
        assert counted[y, x] == 1
        assert targets_px[:, y, x].tolist() == box
        assert box_weights[:, columns].sum() == pytest.approx(1, abs=1e-5)
        assert (counted[heat[label] > 0] == 1).all()
    assert not heat[1].any()
    assert counted[heat.sum(0) == 0].sum() == targets(Scene(scene.rgb_u8, [], scene.ignored))[1][heat.sum(0) == 0].sum()
    assert point_weights.sum() * size_px(first) == pytest.approx(1, abs=1e-5)


def test_targets_of_extreme_heads() -> None:
    heat, counted, *others = targets(empty_scene())
    assert counted.all()
    assert not any(array.any() for array in (heat, *others))
    whole, point, corner = [0.0, 0.0, 96.0, 64.0], [17.0, 9.0, 18.0, 10.0], [95.0, 63.0, 96.0, 64.0]
    for box, cells in ((whole, 7 * 5), (point, 1), (corner, 1)):
        heat, _, _, weights, _, _ = targets(Scene(empty_scene().rgb_u8, [Head("dog", box)]))
        assert ((heat > 0).sum(), (heat == 1).sum(), (weights > 0).sum()) == (cells, 1, cells)
    heads = [Head("dog", point), Head("cat", whole)]  # the smaller head is in front, in any order
    for order in (heads, heads[::-1]):
        heat, _, boxes_px, weights, _, _ = targets(Scene(empty_scene().rgb_u8, order))
        assert boxes_px[:, 1, 2].tolist() == point
        assert weights[1, 2] == 1
        assert boxes_px[:, 4, 6].tolist() == whole
        assert (heat[0, 4, 6], heat[1, 1, 2]) == (1, 1)


# Losses


def test_focal_loss_matches_slow_reference() -> None:
    logits, heat, counted = 3 * randn(2, 3, 4, 5), randn(2, 3, 4, 5, seed=1).sigmoid(), randn(2, 1, 4, 5, seed=2) > 0
    heat[heat > 0.8] = 1
    expected = 0.0
    for image, label, row, column in np.ndindex(2, 3, 4, 5):
        p, value = 1 / (1 + math.exp(-logits[image, label, row, column].item())), heat[image, label, row, column].item()
        loss = (1 - p) ** 2 * math.log(p) if value == 1 else (1 - value) ** 4 * p**2 * math.log(1 - p)
        expected -= loss * counted[image, 0, row, column].item()
    assert focal_loss(logits, heat, counted.float()).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("logit", "heat", "expected"),
    [
        (0, 1, math.log(2) / 4),
        (0, 0, math.log(2) / 4),
        (0, 0.5, math.log(2) / 64),
        (50, 1, 0),
        (-50, 0, 0),
        (-50, 1, 50),
    ]
    + [(50, 0, 50), (50, 0.5, 50 / 16)],
)
def test_focal_loss_of_one_cell(logit, heat, expected) -> None:
    logits, heat = torch.full((1, 1, 1, 1), float(logit), requires_grad=True), torch.full((1, 1, 1, 1), float(heat))
    loss = focal_loss(logits, heat, torch.ones(1, 1, 1, 1))
    loss.backward()
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert logits.grad.isfinite().all()
    assert focal_loss(logits, heat, torch.zeros(1, 1, 1, 1)) == 0


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_gradient_of_focal_loss(scale) -> None:
    logits, heat = scale * randn(1, 2, 3, 3, dtype=torch.float64), randn(1, 2, 3, 3, seed=1).double().sigmoid()
    heat[0, 0, 0] = 1
    counted = torch.ones(1, 1, 3, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda logits: focal_loss(logits, heat, counted), logits.requires_grad_())


def box_tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)[..., None, None]


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([0, 0, 4, 4], 1),
        ([4, 0, 8, 4], 0),
        ([2, 0, 6, 4], 1 / 3),
        ([1, 1, 3, 3], 1 / 4),
        ([4, 4, 8, 8], -1 / 2),
        ([8, 0, 12, 4], -1 / 3),
        ([4e6, 0, 4e6 + 4, 4], -1 + 32 / (4e6 * 4 + 16)),
        ([2, 2, 2, 2], 0),  # empty, inside
    ],
)
def test_generalized_iou_with_square(box, expected) -> None:
    first, square = box_tensor(box), box_tensor([0, 0, 4, 4])
    assert generalized_iou(first, square).item() == pytest.approx(expected, abs=1e-12)
    assert generalized_iou(square, first).item() == pytest.approx(expected, abs=1e-12)


@given(boxes(), boxes())
def test_generalized_iou_matches_number_of_pixels(first, second) -> None:
    pixels = [
        {(x, y) for x in range(*map(int, box[::2])) for y in range(*map(int, box[1::2]))} for box in (first, second)
    ]
    union, low, high = pixels[0] | pixels[1], np.minimum(first, second), np.maximum(first, second)
    hull = (high[2] - low[0]) * (high[3] - low[1])
    expected = len(pixels[0] & pixels[1]) / len(union) - 1 + len(union) / hull
    assert generalized_iou(box_tensor(first), box_tensor(second)).item() == pytest.approx(expected)


@pytest.mark.parametrize("shift", [0.0, 9.0])  # overlapping, apart
def test_gradient_of_generalized_iou(shift) -> None:
    first, second = (
        box_tensor([0, 0, 5, 4], [1.1, 2.3, 6.2, 3.9]),
        box_tensor([2, 1, 7, 3], [0.4, 0.2, 8.1, 3.1]) + shift,
    )
    assert torch.autograd.gradcheck(generalized_iou, (first.requires_grad_(), second.requires_grad_()))


def test_losses_of_two_heads_are_their_mean() -> None:
    """Boxes are one half of a width off, landmarks 2 px."""
    scenes, off_px = [], 2.0
    for box in ([16.0, 16.0, 48.0, 32.0], [40.0, 8.0, 72.0, 56.0]):
        head = Head("cat", box, [[*middle(box)], [math.nan, math.nan], [*box[:2]]])
        scenes.append(Scene(empty_scene().rgb_u8, [head]))
    heat, counted, boxes_px, box_weights, points, point_weights = wanted_maps = target_tensors(*scenes)
    shifted = boxes_px + torch.tensor([16.0, 0, 16, 0])[:, None, None]
    maps = Maps(randn(*heat.shape), shifted, (points + off_px).unflatten(1, (POINTS, 2)))
    labels, box, landmarks = detection_losses(maps, *wanted_maps)
    assert labels.item() == pytest.approx(focal_loss(maps.logits, heat, counted[:, None]).item() / 2)
    assert box.item() == pytest.approx(BOX_WEIGHT * (1 - 1 / 3), rel=1e-5)
    assert landmarks.item() == pytest.approx(
        np.mean([off_px / size_px(scene.heads[0].box) for scene in scenes]), rel=1e-5
    )


def test_losses_of_empty_scene_are_those_of_labels() -> None:
    values = randn(1, 17, 8, 12).requires_grad_()
    losses = detection_losses(to_maps(values), *target_tensors(empty_scene()))
    assert [loss.item() > 0 for loss in losses] == [True, False, False]
    sum(losses).backward()
    assert values.grad.isfinite().all()
    assert not values.grad[:, 3:].any()


def test_learning_rate_rises_and_falls() -> None:
    steps = 10 * WARM_UP_STEPS
    rates = [rate(step, steps) for step in range(steps + 1)]
    assert rates[0] == 1 / WARM_UP_STEPS
    assert rates[steps // 2] == pytest.approx(1 / 2)
    assert (rates[steps], rate(2 * steps, steps)) == (0, 0)
    assert np.argmax(rates) == WARM_UP_STEPS - 1
    assert all(np.diff(rates)[WARM_UP_STEPS - 1 :] < 0)


def test_average_follows_network() -> None:
    networks = [nn.BatchNorm1d(3) for _ in range(4)]
    for seed, network in enumerate(networks):
        network.train()(randn(5, 3, seed=seed) + seed)
        nn.init.uniform_(network.weight)
    average = nn.BatchNorm1d(3)
    for step, network in enumerate(networks, 1):
        follow(average, network, 1 / step)
    for name in ("weight", "running_mean", "running_var"):
        torch.testing.assert_close(getattr(average, name), sum(getattr(each, name) for each in networks) / 4)
    assert average.num_batches_tracked == 1


# Network and file


def test_maps_match_slow_reference() -> None:
    values = 50 * randn(2, 17, 3, 5)
    maps = to_maps(values)
    assert torch.equal(maps.logits, values[:, :3])
    for image, row, column in np.ndindex(2, 3, 5):
        cell, numbers = (8 * column + 4, 8 * row + 4), values[image, :, row, column].tolist()
        sides = [16 * math.exp(min(number, 4)) for number in numbers[3:7]]
        box = [cell[0] - sides[0], cell[1] - sides[1], cell[0] + sides[2], cell[1] + sides[3]]
        assert maps.boxes_xyxy_px[image, :, row, column].tolist() == pytest.approx(box, rel=1e-5)
        points = [[cell[0] + 32 * x, cell[1] + 32 * y] for x, y in zip(numbers[7::2], numbers[8::2], strict=True)]
        np.testing.assert_allclose(maps.points_px[image, :, :, row, column], points, rtol=1e-5, atol=1e-3)


@torch.no_grad()
def test_only_peaks_have_scores(monkeypatch) -> None:
    maps, seen = to_maps(randn(1, 17, 6, 7)), []
    network = DetectorNetwork.__new__(DetectorNetwork)
    nn.Module.__init__(network)
    monkeypatch.setattr(network, "forward", lambda images: seen.append(images) or maps)
    photo_u8 = torch.randint(0, 256, (1, 48, 56, 3), dtype=torch.uint8)
    boxes_px, scores, points = Deployed(network)(photo_u8)
    torch.testing.assert_close(seen[0], standardized(photo_u8))
    best = maps.logits[0].amax(0)
    for index, (row, column) in enumerate(np.ndindex(6, 7)):
        is_peak = best[row, column] == best[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2].max()
        torch.testing.assert_close(scores[index], maps.logits[0, :, row, column].sigmoid() * is_peak)
        assert torch.equal(boxes_px[index], maps.boxes_xyxy_px[0, :, row, column])
        assert torch.equal(points[index], maps.points_px[0, :, :, row, column])
    assert 0 < (scores > 0).all(1).sum() < 42 / 4


def random_network() -> DetectorNetwork:
    """Build a network whose maps vary, except that it says "dog" with the threshold's probability everywhere."""
    torch.manual_seed(0)
    network = DetectorNetwork()
    assert network.eval()(torch.zeros(1, 3, 64, 96)).logits.sigmoid().detach().numpy() == pytest.approx(0.01, abs=2e-3)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        network.train()(randn(4, 3, 128, 128))
        network.top.weight[:3] *= 30
        network.top.weight[3:] *= 10
        network.top.weight[1] = 0
        network.top.bias[:3] = torch.tensor([-1, 0.3, -2.0])
        network.top.bias[1] = torch.tensor(THRESHOLDS["dog"]).logit()
    return network.eval()


@pytest.mark.exhaustive
@pytest.mark.slow
@torch.no_grad()
def test_file_agrees_with_network() -> None:
    """For two sizes; a score is .5 where the probability is the threshold."""
    network = random_network()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    file = deploy(network, THRESHOLDS)
    assert len(file) < 2_000_000
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    session = ort.InferenceSession(file)
    thresholds = torch.tensor([THRESHOLDS[label] for label in LABELS])
    for height, width in ((64, 96), (160, 128)):
        photo_u8 = torch.randint(0, 256, (1, height, width, 3), dtype=torch.uint8)
        boxes_px, scores, points = (torch.from_numpy(array) for array in session.run(None, {"photo": photo_u8.numpy()}))
        maps = network(standardized(photo_u8))
        expected_boxes, _, expected_points = Deployed(network)(photo_u8)
        print(
            (boxes_px - expected_boxes).abs().max(),
            (points - expected_points).abs().max(),
            expected_boxes.std(0),
            expected_points.std(0),
        )
        expected = (maps.logits[0] - thresholds.logit()[:, None, None]).sigmoid().flatten(1).T
        peaks = scores.amax(1) > 0
        print(peaks.float().mean(), (scores - expected)[peaks].abs().max(), expected.std(0))
        print(scores[peaks, 1])
    assert 0
