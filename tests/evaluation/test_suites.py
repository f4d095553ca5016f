"""The suites: what they add to the metrics, such as halves, draws, slices and LFW's files."""

import csv
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from familiar.core.errors import BadDataset, NothingToMeasure
from familiar.core.vectors import normalize, prefix
from familiar.datasets.folders import IdentityTable, scan_folders
from familiar.embedding.embedder import Embedder
from familiar.evaluation import verification_pairs
from familiar.evaluation.context import EvaluationContext, EvaluationOptions, build_context
from familiar.evaluation.suites import clustering as clustering_suite
from familiar.evaluation.suites.catalog import SUITES, run_suites
from familiar.evaluation.suites.clustering import clustering
from familiar.evaluation.suites.harmonic import harmonic
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.lfw import lfw
from familiar.evaluation.suites.overfitting import overfitting
from familiar.evaluation.suites.retrieval import gallery_half, retrieval
from familiar.evaluation.suites.separation import separation
from familiar.evaluation.suites.slices import slices
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.verification import verification
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.same.assignments import UNASSIGNED, load_assignments
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.metrics.pairs import Pairs
from familiar.metrics.retrieval import rank_queries
from familiar.metrics.retrieval import retrieval_metrics as retrieval_figures
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import average_precision, tar_at_far
from familiar.metrics.verification import verification_metrics as verification_figures
from familiar.neighbors.comparison import Comparison, clustering_threshold
from support.evaluation_results import intervals, values
from support.small_gallery import enroll_vectors

pytestmark = pytest.mark.slow


def slow_pairs(context: EvaluationContext) -> tuple[np.ndarray, np.ndarray]:
    rows = context.embeddings.astype(np.float64)
    left, right = np.triu_indices(len(rows), 1)
    scores = (rows[left] * rows[right]).sum(axis=1)
    return scores, context.labels[left] == context.labels[right]


def test_verification_uses_every_pair(make_context):
    context = make_context()
    scores, same = slow_pairs(context)
    result = verification(context)
    figures = values(result)
    assert figures["pairs"] == "all"
    assert (figures["same_pairs"], figures["different_pairs"]) == (same.sum(), (~same).sum())
    assert figures["auc"] == pytest.approx(roc_auc_score(same, scores), abs=1e-6)
    assert figures["average_precision"] == pytest.approx(average_precision_score(same, scores), abs=1e-6)
    similarity, here_tar, here_far = (
        figures[f"at_bundle_thresholds.balanced.{name}"] for name in ("similarity", "tar", "far")
    )
    accepted = scores >= similarity
    tar, far = accepted[same].mean(), accepted[~same].mean()
    assert (here_tar, here_far) == (pytest.approx(tar), pytest.approx(far))
    for name in ("auc", "average_precision", "eer", "at_bundle_thresholds.balanced.accuracy"):
        low, high = intervals(result)[name]
        assert low <= figures[name] <= high, name


def column(figures: dict[str, Any], name: str) -> list[float]:
    """Return a value of each bin of the probabilities."""
    return [value for path, value in figures.items() if re.fullmatch(rf"probability\.bins\.\d+\.{name}", path)]


def test_reliability_uses_bundle_calibration_curve(make_context):
    context = make_context()
    scores, same = slow_pairs(context)
    calibration = context.model.metadata.calibration
    probabilities = 1 / (1 + np.exp(-(calibration.slope * scores + calibration.intercept)))
    figures = values(verification(context))
    weights = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())
    bins = np.minimum((probabilities * 15).astype(int), 14)
    nonempty = [b for b in range(15) if (bins == b).any()]
    assert column(figures, "weight") == pytest.approx([weights[bins == b].sum() for b in nonempty])
    assert column(figures, "observed") == pytest.approx(
        [weights[(bins == b) & same].sum() / weights[bins == b].sum() for b in nonempty]
    )


def test_reliability_of_a_sample_is_that_of_all_pairs(make_context, monkeypatch):
    context = make_context(identities=60)
    all_pairs = values(verification(context))
    monkeypatch.setattr(verification_pairs, "MAX_INTERVAL_PAIRS", 2_000)
    context = make_context(identities=60)
    sampled = values(verification(context))
    assert sampled["interval_pairs"] < 0.1 * (sampled["same_pairs"] + sampled["different_pairs"])
    assert sampled["probability.calibration_error"] == pytest.approx(
        all_pairs["probability.calibration_error"], abs=2e-3
    )
    assert column(sampled, "observed") == pytest.approx(column(all_pairs, "observed"), abs=2e-3)


def test_verification_uses_requested_sampled_or_listed_pairs(make_context):
    context = make_context(identities=30)
    drawn = values(verification(replace(context, options=EvaluationOptions(pairs="balanced", pair_count=200))))
    assert (drawn["pairs"], drawn["same_pairs"], drawn["different_pairs"]) == ("balanced", 100, 100)
    drawn = values(verification(replace(context, options=EvaluationOptions(pairs="natural", pair_count=2000))))
    assert (drawn["pairs"], drawn["same_pairs"] + drawn["different_pairs"]) == ("natural", 2000)
    assert drawn["same_pairs"] < 200
    listed = replace(context, pairs=Pairs(np.array([0, 0]), np.array([1, 9]), np.array([True, False])))
    assert values(verification(listed))["pairs"] == "listed"


@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=30).map(lambda v: np.array(v, np.int64)))
def test_gallery_half_takes_half_the_photos_per_identity(labels):
    enrolled = gallery_half(labels, 3)
    for label in np.unique(labels):
        photos = (labels == label).sum()
        assert enrolled[labels == label].sum() == (photos + 1) // 2


def test_retrieval_reports_leave_one_out_and_gallery_metrics(make_context):
    context = make_context()
    figures = values(retrieval(context))
    assert figures["recall_at_1"] == retrieval_figures(context.embeddings, context.labels).recall_at_k[1]
    half = gallery_half(context.labels, 0)
    ranked = rank_queries(
        context.embeddings[~half], context.labels[~half], (context.embeddings[half], context.labels[half])
    )
    assert figures["query_gallery.mrr"] == pytest.approx((1 / ranked.first_match_rank).mean())
    assert (figures["query_gallery.queries"], figures["query_gallery.gallery"]) == (24, 24)


def test_triplets_equal_closed_form(make_context):
    context = make_context(identities=2, per=2, dim=2)
    rows = np.array([[1, 0], [0.6, 0.8], [0, 1], [-0.6, 0.8]], np.float32)
    figures = values(triplets(replace(context, embeddings=rows)))
    assert (figures["triplets"], figures["violation_rate"]) == (8, 0.25)
    assert figures["average_margin"] == pytest.approx(0.58)


def test_clustering_measures_the_photos_and_has_the_bundles_threshold_for_few(make_context):
    figures = values(clustering(make_context(noise=0.02, dim=48)))
    assert [figures[f"groups.bcubed.{name}"] for name in ("precision", "recall", "f")] == [1.0, 1.0, 1.0]
    context = make_context(noise=0.02, dim=48)
    expected = Comparison.measure(context.embeddings, context.calibration)
    assert expected.estimate is not None
    assert figures["groups.threshold"] == pytest.approx(expected.threshold)
    few = make_context(identities=3)
    assert values(clustering(few))["groups.threshold"] == clustering_threshold(few.calibration, len(few.labels))
    assert figures["groups.groups"] == figures["groups.identities"] == figures["kmeans.k"] == 12
    assert figures["kmeans.ami"] == 1.0
    single_identity = make_context(identities=1)
    with pytest.raises(NothingToMeasure, match="two identities"):
        clustering(single_identity)
    single_photos = values(clustering(make_context(per=1)))
    assert (single_photos["groups.pairwise"], single_photos["groups.bcubed"]) == (None, None)


def test_clusters_are_those_of_a_gallery(make_context, tmp_path):
    """Of the same faces: whitened and from the threshold that they suggest, or so few that the model decides."""
    for identities in (12, 3):
        context = make_context(identities=identities, dim=16, noise=0.2)
        space = Space("drawn", 16, (16,), context.calibration)
        with Store.create(tmp_path / str(identities), space, embedding_dtype="float32") as store:
            faces = enroll_vectors(store, context.embeddings)
            cluster(store)
            identity = load_assignments(store).identity
        unassigned = identity == UNASSIGNED
        expected = np.where(unassigned, -np.array(faces), identity)
        groups, _, _ = clustering_suite._group_photos(context)
        pairs = [np.unique(np.stack([groups, each]), axis=1).shape[1] for each in (expected, groups)]
        assert pairs[0] == pairs[1] == len(np.unique(expected)) > 2


def test_separation_and_identification_score_perfect_embeddings(make_context):
    perfect = make_context(noise=0.01)
    figures = values(separation(perfect))
    assert figures["silhouette"] > 0.95
    assert figures["same.minimum"] <= figures["same.percentiles.5"] <= figures["same.maximum"]
    assert figures["different.minimum"] <= figures["different.percentiles.95"] <= figures["different.maximum"]
    assert figures["same.percentiles.5"] > 0.99 > figures["different.percentiles.95"]
    assert figures["dunn.centroids"] > 5
    identified = values(identification(perfect))
    assert (identified["rank_1"], identified["enrolled_identities"]) == (1.0, 6)
    assert (identified["known_probes"], identified["unknown_probes"]) == (18, 24)
    assert [identified[f"dir_at_far.1e-{n}"] for n in (1, 2, 3)] == [None, None, None]  # fewer than 100 unknown ones


def test_harmonic_measures_each_prefix(make_context):
    context = make_context(dim=3)
    with pytest.raises(NothingToMeasure, match="full length"):
        harmonic(context)
    metadata = replace(context.model.metadata, prefixes=(2, 3))
    bundle = replace(context.model.bundle, metadata=metadata)
    embedder = type(context.model)(bundle)
    figures = values(harmonic(replace(context, model=embedder)))
    sizes = [(figures[f"prefixes.{index}.components"], figures[f"prefixes.{index}.bytes"]) for index in (0, 1)]
    assert sizes == [(2, 8), (3, 12)]
    assert figures["prefixes.0.saved_fraction"] == pytest.approx(1 / 3)
    short = retrieval_figures(prefix(context.embeddings, 2), context.labels)
    assert figures["prefixes.0.retrieval.recall_at_1"] == short.recall_at_k[1]
    assert not any("at_bundle_thresholds" in path for path in figures)  # they are for the full length
    assert figures["prefixes.1.verification.auc"] == values(verification(context))["auc"]


def test_overfitting_compares_equal_galleries(colors, mean_color_bundle):
    whole = scan_folders(colors)
    trained = whole.select_identities(whole.names[:6])
    context = build_context(Embedder(mean_color_bundle), whole.select_identities(whole.names[6:]), trained_on=trained)
    figures = values(overfitting(context))
    assert (figures["identities"], figures["photos_per_identity"]) == (6, 2)
    assert figures["gap"] == pytest.approx(figures["train_recall_at_1"] - figures["test_recall_at_1"])
    # The same identities on both sides have no gap, whatever is drawn.
    both = build_context(Embedder(mean_color_bundle), whole, trained_on=trained)
    assert values(overfitting(both))["test_recall_at_1"] == figures["test_recall_at_1"]
    for no_photos in (None, trained.select_rows(np.arange(0))):
        with pytest.raises(NothingToMeasure, match="trained on"):
            overfitting(replace(context, trained_on=no_photos))
    with pytest.raises(NothingToMeasure, match="two others"):
        overfitting(replace(build_context(Embedder(mean_color_bundle), trained), trained_on=trained))


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_slices_are_sorted_worst_first(make_context, tmp_path):
    good = make_context(identities=6, noise=0.05)
    bad = make_context(identities=6, noise=3.0, seed=4)
    context = replace(make_context(), embeddings=np.concatenate([good.embeddings, bad.embeddings]))
    facts = [{"identity": f"{identity:02d}", "light": "day" if identity < 6 else "night"} for identity in range(12)]
    options = EvaluationOptions(slices=write_csv(tmp_path / "facts.csv", facts))
    figures = values(slices(replace(context, options=options)))
    assert [figures[f"columns.light.{index}.value"] for index in (0, 1)] == ["night", "day"]
    sizes = [
        (figures[f"columns.light.{index}.photos"], figures[f"columns.light.{index}.identities"]) for index in (0, 1)
    ]
    assert sizes == [(24, 6), (24, 6)]
    night = np.arange(24, 48)
    ranks = rank_queries(context.embeddings, context.labels).first_match_rank
    assert figures["columns.light.0.retrieval.recall_at_1"] == np.mean(ranks[night] == 1)  # among all photos
    night_context = context.select_rows(night)
    assert figures["columns.light.0.verification.auc"] == values(verification(night_context))["auc"]  # among its own
    more_suites = replace(options, suites=("slices", "separation"))
    assert "columns.light.0.separation.silhouette" in values(slices(replace(context, options=more_suites)))
    with pytest.raises(NothingToMeasure, match="--slices"):
        slices(context)


def test_unmeasurable_slice_has_reason_and_is_last(make_context, tmp_path):
    facts = [{"photo": f"{row}.png", "size": "single" if row == 0 else "many"} for row in range(48)]
    options = EvaluationOptions(("slices", "verification"), slices=write_csv(tmp_path / "facts.csv", facts))
    result = slices(make_context(options=options))
    assert [values(result)[f"columns.size.{index}.value"] for index in (0, 1)] == ["many", "single"]
    assert values(result)["columns.size.1.verification"] is None
    assert result.missing.keys() == {"columns.size.1.verification"}


def lfw_folder(root: Path, folds: int = 2, each: int = 3) -> None:
    """Write pairs of consecutive photos in `folds` folds, and a View 1 of the same."""
    lines = []
    for fold in range(folds):
        people = [f"Person_{(fold * each + index) % 12:02d}" for index in range(each + 1)]
        lines += [f"{name}\t1\t2" for name in people[:each]]
        lines += [f"{first}\t1\t{second}\t2" for first, second in pairwise(people)]
    (root / "pairs.txt").write_text(f"{folds}\t{each}\n" + "\n".join(lines) + "\n")
    for name in ("pairsDevTrain.txt", "pairsDevTest.txt"):
        (root / name).write_text(f"{each}\n" + "\n".join(lines[: 2 * each]) + "\n")


def test_lfw_reads_pair_files_in_data_folder(colors, mean_color_bundle):
    table = scan_folders(colors)
    context = build_context(Embedder(mean_color_bundle), table)
    assert not SUITES["lfw"].applies(context)
    with pytest.raises(NothingToMeasure, match=r"pairs\.txt"):
        lfw(context)
    lfw_folder(colors)
    figures = values(lfw(context))
    assert SUITES["lfw"].applies(context)
    accuracies = [figures[f"view_2.folds.{fold}.accuracy"] for fold in (0, 1)]
    assert figures["view_2.accuracy"] == pytest.approx(np.mean(accuracies))
    assert figures["view_2.standard_error"] == pytest.approx(np.std(accuracies, ddof=1) / np.sqrt(2))
    assert figures["view_1.pairs"] == 6
    (colors / "pairs.txt").unlink()
    without = lfw(context)
    assert values(without)["view_2"] is None
    assert "pairs.txt is in none" in without.missing["view_2"]
    (colors / "pairsDevTrain.txt").write_text("3\nNobody\t1\t2\n")
    with pytest.raises(NothingToMeasure, match="Nobody"):
        lfw(context)


def test_undefined_suites_are_none_with_reason(make_context):
    names = ["retrieval", "verification", "triplets", "separation", "identification"]
    singles = run_suites(make_context(per=1), names)
    for name in names:
        assert singles.reasons[name], name
    assert singles.figures == {}
    single_identity = run_suites(make_context(identities=1), ["verification", "clustering", "triplets", "separation"])
    assert set(single_identity.reasons) == {"verification", "clustering", "triplets", "separation"}
    assert "different" in single_identity.reasons["verification"]
    collapsed = make_context(embeddings=np.tile(normalize(np.ones((1, 8), np.float32)), (48, 1)))
    results = run_suites(collapsed, ["retrieval", "verification", "triplets", "separation"])
    figures = values(results)
    assert figures["retrieval.recall_at_1"] == 0.0
    assert figures["verification.auc"] == 0.5
    assert figures["triplets.violation_rate"] == 1.0
    assert "separation" in results.reasons
    with pytest.raises(BadDataset, match="clairvoyance"):
        run_suites(collapsed, ["clairvoyance"])


def test_intervals_and_replicates_have_metric_paths_as_names(make_context):
    results = run_suites(
        make_context(identities=30), ["retrieval", "verification", "clustering", "triplets", "identification"]
    )
    leave_one_out = {path for path in intervals(results) if ".query_gallery." not in path}
    assert results.replicates.keys() == leave_one_out
    for path in results.replicates:
        value, (low, high) = values(results)[path], intervals(results)[path]
        assert isinstance(value, float)
        assert low - 0.15 <= value <= high + 0.15, path
    json.dumps(values(results), allow_nan=False)


def test_few_identities_have_no_interval(make_context):
    results = run_suites(make_context(identities=9), ["retrieval", "verification", "clustering", "triplets"])
    assert intervals(results) == results.replicates == {}


def test_slices_csv_adds_slices_to_any_suites(make_context, tmp_path):
    facts = [{"identity": f"{identity:02d}", "side": "ab"[identity % 2]} for identity in range(12)]
    options = EvaluationOptions(("retrieval",), slices=write_csv(tmp_path / "facts.csv", facts))
    paths = run_suites(make_context(options=options), options.suites).figures
    assert {path.partition(".")[0] for path in paths} == {"retrieval", "slices"}
    assert "slices.columns.side.0.retrieval.mrr" in paths
    assert not any(path.startswith("slices.columns.side.0.verification") for path in paths)


def test_recall_at_k_is_none_without_more_than_k_candidates(make_context):
    few = values(retrieval(make_context(identities=2, per=3)))
    assert few["recall_at_1"] is not None
    assert few["recall_at_5"] is None  # five others are searched
    assert few["recall_at_10"] is None
    identified = values(identification(make_context(identities=8)))
    assert identified["rank_1"] is not None
    assert identified["rank_5"] is None  # four are enrolled


def test_weighted_pair_sample_matches_all_pairs_metrics(make_context):
    """The metrics of the weighted sample are those of all pairs."""
    context = make_context(identities=150, per=4, noise=0.9)
    scored = context.scored_pairs
    assert (scored.sampling, len(scored.scores) < scored.counts.same + scored.counts.different) == ("all", True)
    assert scored.weights[scored.pairs.same].sum() == pytest.approx(scored.counts.same)
    assert scored.weights[~scored.pairs.same].sum() == pytest.approx(scored.counts.different)
    same, weights = scored.pairs.same, scored.weights
    counts = roc_counts(scored.scores[same], scored.scores[~same], weights[same], weights[~same])
    all_pairs = verification_figures(scored.counts)
    assert average_precision(counts) == pytest.approx(all_pairs.average_precision, abs=2e-3)
    assert tar_at_far(counts, 1e-2).tar == pytest.approx(all_pairs.tar_at_far["1e-2"], abs=1e-9)
    assert "tar_at_far.1e-3" in intervals(verification(context))


def test_overfitting_ignores_validation_identities(colors, mean_color_bundle):
    whole = scan_folders(colors)
    context = build_context(
        Embedder(mean_color_bundle),
        whole,
        trained_on=whole.select_identities(whole.names[:4]),
        seen_identities=frozenset(whole.names[:9]),
    )
    assert values(overfitting(context))["identities"] == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), most=st.integers(1, 40))
def test_sample_covers_many_identities(make_context, sizes, most):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    table = IdentityTable(
        tuple(Path(f"d/{row}.png") for row in range(len(labels))),
        labels.astype(np.int64),
        tuple(f"d/{label:02d}" for label in range(len(sizes))),
    )
    rows = replace(make_context(), table=table).sample_rows(most)
    assert 1 <= len(rows) <= most
    assert len(np.unique(rows)) == len(rows)
    if sum(sizes) <= most:
        assert len(rows) == sum(sizes)
    if most >= 2 * len(sizes):
        assert len(np.unique(labels[rows])) == len(sizes)  # rather some photos of each than few identities
