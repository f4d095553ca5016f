import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.blockwise import similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import normalize
from familiar.metrics.identification import (
    IdentifiedProbes,
    at_threshold,
    dir_at_far,
    enroll_split,
    identification_metrics,
    identify,
    point_at_far,
    rank_k,
)


def photos(identities=8, per=6, dim=5, noise=0.8, seed=0, coarse=False):
    """Draw unit rows around one direction per identity, and their labels, shuffled."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(identities) * 5 - 7, per))
    rows = rng.normal(size=(identities, dim))[(labels + 7) // 5] + noise * rng.normal(size=(len(labels), dim))
    if coarse:  # few directions, so that many similarities tie
        rows = np.round(rows) + 0.25
    return normalize(rows.astype(np.float32)), labels


def split(embeddings, labels, seed=0, photos_enrolled=2):
    rows = enroll_split(labels, seed, photos_enrolled)
    return tuple((embeddings[part], labels[part]) for part in (rows.gallery, rows.probes))


def slow_identify(gallery, probes):
    """Return (rank of the probe's own identity or 0, similarity to the nearest) of each probe."""
    result = []
    for row, label in zip(*probes, strict=True):
        scores = similarities(unit_rows(row[None]), unit_rows(gallery[0]))[0]
        best = {identity: scores[gallery[1] == identity].max() for identity in set(gallery[1])}
        rank = sum(score >= best[label] for score in best.values()) if label in best else 0
        result.append((rank, max(best.values())))
    return result


def probes_of(known, unknown):
    """Make known probes of (rank, similarity) and unknown ones of similarities, each of an identity of its own."""
    ranks, scores = zip(*known, *((0, score) for score in unknown), strict=True)
    return IdentifiedProbes(np.arange(len(ranks)), np.array(ranks), np.array(scores, np.float32), np.ones(len(ranks)))


@given(
    seed=st.integers(0, 999),
    identities=st.integers(2, 8),
    per=st.integers(2, 6),
    coarse=st.booleans(),
    block_rows=st.sampled_from([None, 1, 3]),
)
def test_matches_slow_reference_for_any_block_size(seed, identities, per, coarse, block_rows):
    gallery, probes = split(*photos(identities, per, 2 if coarse else 5, seed=seed, coarse=coarse))
    result = identify(gallery, probes, block_rows)
    expected = slow_identify(gallery, probes)
    assert list(zip(result.rank.tolist(), result.similarity.tolist(), strict=True)) == expected
    assert result.known.tolist() == [rank > 0 for rank, _ in expected]


@pytest.mark.slow
@given(seed=st.integers(0, 999), threshold=st.floats(-1, 1), coarse=st.booleans())
def test_rates_match_counts_for_any_names_and_order(seed, threshold, coarse):
    gallery, probes = split(*photos(seed=seed, coarse=coarse))
    expected = slow_identify(gallery, probes)
    known = [(rank, score) for rank, score in expected if rank]
    unknown = [score for rank, score in expected if not rank]
    result = identify(gallery, probes)
    point = at_threshold(result, threshold)
    assert point.dir == pytest.approx(np.mean([rank == 1 and score >= threshold for rank, score in known]))
    assert point.misidentified == pytest.approx(np.mean([rank > 1 and score >= threshold for rank, score in known]))
    assert point.dir + point.misidentified + point.rejected == pytest.approx(1.0)
    assert point.far == pytest.approx(np.mean([score >= threshold for score in unknown]))

    rng = np.random.default_rng(seed)
    shuffles = rng.permutation(len(gallery[1])), rng.permutation(len(probes[1]))
    shuffled = [
        (rows[order], 100 - labels[order]) for (rows, labels), order in zip((gallery, probes), shuffles, strict=True)
    ]
    assert identify(*shuffled).rank.tolist() == result.rank[shuffles[1]].tolist()
    assert at_threshold(identify(*shuffled), threshold) == point


def test_rates_equal_worked_example():
    result = probes_of(known=[(1, 0.9), (1, 0.6), (2, 0.7), (1, 0.2)], unknown=[0.8, 0.5, 0.5, 0.1])
    point = at_threshold(result, 0.5)
    assert (point.dir, point.misidentified, point.rejected, point.far) == (0.5, 0.25, 0.25, 0.75)
    # FAR of at most a quarter: only .8 may be let in, so the threshold is just above .5.
    point = point_at_far(result, 0.25)
    assert (point.dir, point.misidentified, point.rejected, point.far) == (0.5, 0.25, 0.25, 0.25)
    assert point.similarity == np.nextafter(np.float32(0.5), np.float32(1))
    # At most a half or a little less than 3/4: both .5 at once or none.
    assert point_at_far(result, 0.74) == point
    assert point_at_far(result, 0.75).far == 0.75
    no_accepts = point_at_far(result, 0.0)
    assert (no_accepts.dir, no_accepts.misidentified, no_accepts.far) == (0.25, 0.0, 0.0)
    # An unknown probe that was not drawn does not raise the threshold.
    drawn = dataclasses.replace(result, weights=np.array([1.0, 1, 1, 1, 0, 1, 1, 1]))
    assert point_at_far(drawn, 0.0).similarity == np.nextafter(np.float32(0.5), np.float32(1))
    assert [rank_k(result, k) for k in (1, 2)] == [0.75, 1.0]


@given(
    unknown=st.lists(st.integers(-4, 4).map(lambda i: i / 4), min_size=1, max_size=30),
    known=st.lists(st.tuples(st.integers(1, 2), st.integers(-4, 4).map(lambda i: i / 4)), min_size=1, max_size=30),
    far=st.floats(0, 0.99),
)
def test_point_at_far_uses_largest_rate_within_target(unknown, known, far):
    result = probes_of(known, unknown)
    point = point_at_far(result, far)
    reachable = [np.mean(np.array(unknown) >= t) for t in [*unknown, 2.0]]
    assert point.far == pytest.approx(max(rate for rate in reachable if rate <= far + 1e-9))
    # Of all thresholds with that rate none names more of the known probes.
    others = [at_threshold(result, t) for t in [score for _, score in known] + unknown]
    assert point.dir >= max((other.dir for other in others if other.far <= point.far + 1e-9), default=0.0)


def test_dir_at_far_is_none_below_ten_false_accepts():
    enough, few = (probes_of([(1, 0.5)], np.linspace(0, 1, size)) for size in (100, 99))
    assert dir_at_far(enough, 0.1) == point_at_far(enough, 0.1)
    assert dir_at_far(few, 0.1) is None
    assert dir_at_far(enough, 0.01) is None


def test_without_unknown_probes_far_is_none():
    result = probes_of([(1, 0.5), (2, 0.6)], [])
    assert at_threshold(result, 0.5).far is None
    assert dir_at_far(result, 0.1) is None
    with pytest.raises(NothingToMeasure, match="every probe's identity is enrolled"):
        point_at_far(result, 0.1)


def test_rejects_probes_without_enrolled_identity():
    embeddings, labels = photos()
    with pytest.raises(NothingToMeasure, match="no probe's identity is enrolled"):
        identify((embeddings, labels), (embeddings, labels + 1))
    no_photos = np.empty((0, 5), np.float32), np.empty(0, np.int64)
    for gallery, probes in ((no_photos, (embeddings, labels)), ((embeddings, labels), no_photos)):
        with pytest.raises(NothingToMeasure, match="no probe's identity is enrolled"):
            identification_metrics(gallery, probes)
    with pytest.raises(NothingToMeasure):
        at_threshold(dataclasses.replace(probes_of([(1, 0.5)], [0.5]), weights=np.array([0.0, 1.0])), 0.5)


def test_collapsed_model_identifies_no_probe():
    embeddings = np.tile(normalize(np.array([[0.3, -0.2, 0.7]], np.float32)), (400, 1))
    metrics = identification_metrics(*split(embeddings, np.arange(400) // 4))
    assert metrics.cmc == {1: 0.0, 5: 0.0, 10: 0.0}
    point = metrics.dir_at_far["1e-1"]
    assert (point.dir, point.misidentified, point.rejected, point.far) == (0.0, 0.0, 1.0, 0.0)


def test_perfect_model_identifies_exactly_the_known_probes():
    embeddings = np.repeat(np.eye(60, dtype=np.float32), 4, axis=0)
    metrics = identification_metrics(*split(embeddings, np.arange(240) // 4))
    assert metrics.cmc == {1: 1.0, 5: 1.0, 10: 1.0}
    point = metrics.dir_at_far["1e-1"]
    assert (point.dir, point.misidentified, point.rejected, point.far) == (1.0, 0.0, 0.0, 0.0)
    assert metrics.dir_at_far["1e-2"] is metrics.dir_at_far["1e-3"] is None
    counts = metrics.known_probes, metrics.unknown_probes
    assert counts == (30 * 2, 30 * 4)
    assert (metrics.enrolled_identities, metrics.enrolled_photos) == (30, 60)


@given(drawn=st.lists(st.integers(0, 3), min_size=8, max_size=8), seed=st.integers(0, 99), t=st.floats(-1, 1))
def test_weighted_probes_equal_repeated_probes(drawn, seed, t):
    gallery, probes = split(*photos(seed=seed))
    result = identify(gallery, probes)
    times = np.array(drawn)[(result.label + 7) // 5]
    if not times[result.known].any() or not times[~result.known].any():
        return
    copied = IdentifiedProbes(
        np.repeat(result.label, times),
        np.repeat(result.rank, times),
        np.repeat(result.similarity, times),
        np.ones(times.sum()),
    )
    weighted = dataclasses.replace(result, weights=times.astype(np.float64))
    for weighted_point, copied_point in (
        (at_threshold(weighted, t), at_threshold(copied, t)),
        (point_at_far(weighted, 0.3), point_at_far(copied, 0.3)),
    ):
        assert dataclasses.astuple(weighted_point) == pytest.approx(dataclasses.astuple(copied_point))
    assert rank_k(weighted, 2) == pytest.approx(rank_k(copied, 2))


def test_the_threshold_is_not_rounded_to_float32():
    result = probes_of([(1, 0.3)], [0.3])
    above = float(np.nextafter(float(np.float32(0.3)), 1.0))
    assert at_threshold(result, float(np.float32(0.3))).dir == 1.0
    assert at_threshold(result, above).dir == 0.0


def test_rejects_non_unit_vectors_and_invalid_far():
    embeddings, labels = photos()
    broken = embeddings.copy()
    broken[4, 0] = np.nan
    for gallery, probes in ((broken, embeddings), (embeddings, 2 * embeddings)):
        with pytest.raises(ValueError, match="not unit vectors"):
            identify((gallery, labels), (probes, labels))
    for far in (1.0, -0.1, np.nan):
        with pytest.raises(ValueError, match="in \\[0, 1\\)"):
            point_at_far(probes_of([(1, 0.5)], [0.5]), far)


@given(
    labels=st.lists(st.integers(-3, 9), min_size=2, max_size=60).map(np.array),
    seed=st.integers(0, 99),
    photos_enrolled=st.integers(1, 4),
)
def test_enroll_split_enrolls_half_the_identities(labels, seed, photos_enrolled):
    identities, counts = np.unique(labels, return_counts=True)
    able = identities[counts >= 2]
    if not able.size:
        with pytest.raises(NothingToMeasure, match="no identity has two photos"):
            enroll_split(labels, seed, photos_enrolled)
        return
    rows = enroll_split(labels, seed, photos_enrolled)
    assert sorted([*rows.gallery, *rows.probes]) == list(range(len(labels)))
    known, enrolled = np.unique(labels[rows.gallery], return_counts=True)
    assert len(known) == (len(able) + 1) // 2
    assert set(known) <= set(able)
    photos = dict(zip(identities, counts, strict=True))
    assert enrolled.tolist() == [min(photos_enrolled, photos[identity] - 1) for identity in known]
    again = enroll_split(labels, seed, photos_enrolled)
    assert np.array_equal(rows.gallery, again.gallery)


def test_enroll_split_is_random_in_identities_and_photos():
    labels = np.repeat(np.arange(200), 5)
    galleries = [enroll_split(labels, seed).gallery for seed in range(2)]
    # Two random halves share half; of those an identity's one of five photos is the same in a fifth.
    both = np.intersect1d(labels[galleries[0]], labels[galleries[1]]).size
    assert 30 < both < 70
    assert np.intersect1d(*galleries).size < both / 2
    with pytest.raises(ValueError, match="at least 1"):
        enroll_split(labels, photos_enrolled=0)
