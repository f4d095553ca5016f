import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from familiar.core.errors import SpaceMismatch
from familiar.core.json_codec import DOCUMENTS
from familiar.embedding.species.classifier import HeldOutAccuracy, SpeciesClassifier, check_species_names
from support.tiny_router import color_classifier


def poles(slope: float, temperature: float = 1.0) -> SpeciesClassifier:
    """Create a classifier for two species at opposite poles of the first axis."""
    return SpeciesClassifier(
        names=("cat", "dog"),
        weights=np.array([[slope, 0.0], [-slope, 0.0]]),
        bias=np.zeros(2),
        temperature=temperature,
        space_id="s",
        training_counts={},
        held_out=HeldOutAccuracy(1.0, ((1, 0, 0), (0, 1, 0))),
    )


def unit_rows(count: int, width: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_probabilities_equal_closed_form_for_two_species():
    rows = np.array([[1, 0], [-1, 0], [0, 1], [0.6, 0.8]], np.float32)
    cat = [1 / (1 + math.exp(-2 * 1.5 * x / 0.5)) for x in (1, -1, 0, 0.6)]
    expected = [[p, 1 - p] for p in cat]
    np.testing.assert_allclose(poles(1.5, 0.5).probabilities(rows, "s"), expected, atol=1e-7)


def test_probabilities_match_softmax_reference():
    generator = np.random.default_rng(1)
    classifier = replace(
        color_classifier("s"),
        weights=generator.normal(0, 5, (3, 4)),
        bias=generator.normal(size=3),
        temperature=0.7,
    )
    rows = unit_rows(20, 4)
    for row, probabilities in zip(rows, classifier.probabilities(rows, "s"), strict=True):
        powers = [
            math.exp((sum(w * float(x) for w, x in zip(weights, row, strict=True)) + bias) / 0.7)
            for weights, bias in zip(classifier.weights, classifier.bias, strict=True)
        ]
        np.testing.assert_allclose(probabilities, [power / sum(powers) for power in powers], rtol=1e-9)


def test_extreme_weights_do_not_overflow():
    rows = np.array([[1, 0], [-1, 0]], np.float32)
    assert poles(1e300).probabilities(rows, "s").tolist() == [[1, 0], [0, 1]]


def test_empty_input_returns_empty_probabilities():
    assert poles(1.0).probabilities(np.empty((0, 2), np.float32), "s").shape == (0, 2)


@pytest.mark.parametrize("row", [[np.nan, 1.0], [0.0, 0.0], [2.0, 0.0], [np.inf, 0.0]])
def test_rejects_non_unit_rows(row: list[float]):
    with pytest.raises(ValueError, match="the first is row 1"):
        poles(1.0).probabilities(np.array([[1, 0], row], np.float32), "s")


def test_rejects_other_space_or_dimension():
    with pytest.raises(SpaceMismatch, match="other"):
        poles(1.0).probabilities(unit_rows(1, 2), "other")
    with pytest.raises(SpaceMismatch, match="3"):
        poles(1.0).probabilities(unit_rows(1, 3), "s")


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": np.zeros((3, 2))},
        {"weights": np.zeros((2, 0))},
        {"weights": np.array([[np.nan, 0], [0, 0]])},
        {"bias": np.zeros(3)},
        {"bias": np.array([np.inf, 0])},
        {"temperature": 0.0},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"min_probability": 1.1},
        {"min_probability": math.nan},
        {"held_out": HeldOutAccuracy(1.0, ((1, 0), (0, 1)))},
        {"names": ("cat", "cat")},
    ],
)
def test_rejects_invalid_classifier(changed: dict):
    with pytest.raises((ValueError, TypeCheckError)):  # the latter for wrong shapes, in tests only
        replace(poles(1.0), **changed)


def test_check_names_accepts_valid_and_rejects_invalid():
    check_species_names(("cat", "long-haired_cat", "кошка"))
    for wrong in ((), ("cat",), ("cat", "cat"), ("cat", ""), ("cat", "a b"), ("cat", "a/b")):
        with pytest.raises(ValueError, match="species"):
            check_species_names(wrong)


@given(
    st.integers(2, 4).flatmap(
        lambda k: st.lists(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), min_size=k, max_size=k)
    ),
    st.floats(1e-3, 1e3),
)
def test_json_round_trip_is_bit_exact(rows: list[list[float]], temperature: float):
    table = np.array(rows)
    classifier = SpeciesClassifier(
        names=tuple("abcd"[: len(rows)]),
        weights=table[:, :3],
        bias=table[:, 3],
        temperature=temperature,
        space_id="s",
        training_counts={"a": {"identities": 2, "photos": 5}},
        held_out=HeldOutAccuracy(0.5, ((0,) * (len(rows) + 1),) * len(rows)),
        min_probability=0.75,
    )
    again = DOCUMENTS.from_json(SpeciesClassifier, json.loads(json.dumps(DOCUMENTS.to_json(classifier))))
    vectors = unit_rows(8, 3)
    assert (again.probabilities(vectors, "s") == classifier.probabilities(vectors, "s")).all()
    assert (again.names, again.min_probability, again.held_out) == (classifier.names, 0.75, classifier.held_out)
    assert DOCUMENTS.to_json(again) == DOCUMENTS.to_json(classifier)


def test_held_out_shares_weight_species_equally():
    held_out = HeldOutAccuracy(0.0, ((6, 2, 2), (0, 50, 50)))  # cats: .2 wrong, .2 unsure; dogs: 0, .5
    assert held_out.misrouted_rate == pytest.approx(0.1)
    assert held_out.unsure_rate == pytest.approx(0.35)
