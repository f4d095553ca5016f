"""The report: three sentences, a section for every suite, self-contained, for any names and nulls."""

import base64
import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.core.calibration import Calibration, Threshold
from familiar.core.errors import NothingToMeasure
from familiar.datasets.folders import scan_folders
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationContext, EvaluationOptions, build_context
from familiar.evaluation.report import write_report
from familiar.evaluation.report.examples import Examples, collect_examples, wilson_lower_bound
from familiar.evaluation.report.labels import format_metric, format_percent
from familiar.evaluation.report.page import render
from familiar.evaluation.report.photos import neighbor_grid
from familiar.evaluation.report.summary import (
    accuracy_sentence,
    failure_sentence,
    summary_sentences,
    threshold_sentence,
    threshold_shift,
)
from familiar.evaluation.suites.catalog import SuiteResults, run_suites
from support.color_folders import color_folder

PNG = b"\x89PNG\r\n\x1a\n"
SUITES = (
    *(
        "retrieval",
        "verification",
        "clustering",
        "triplets",
        "overfitting",
        "robustness",
        "tta",
        "separation",
    ),
    *("identification", "harmonic", "slices", "lfw"),
)


def context_in(root: Path, bundle: Path) -> EvaluationContext:
    return build_context(Embedder(bundle), scan_folders(root), EvaluationOptions())


@pytest.fixture
def context(tmp_path: Path, mean_color_bundle: Path) -> EvaluationContext:
    return context_in(color_folder(tmp_path / "colors"), mean_color_bundle)


def document(context: EvaluationContext, suites: tuple[str, ...] = ("retrieval", "verification")) -> dict[str, Any]:
    suite_results = run_suites(context, suites) if suites else SuiteResults()
    return {
        "format_version": 3,
        "model": {
            "file_id": "f" * 64,
            "space_id": "mean-color",
            "recipe": "none",
            "network": "mean color",
            "size_bytes": 300,
            "embedding_dim": 3,
            "tta": None,
            "thresholds_fitted": True,
        },
        "data": {
            "sources": ["colors"],
            "split": "all",
            "identities": len(context.table.names),
            "photos": len(context.table),
            "identities_seen_in_training": 0,
            "skipped": [],
            "fingerprint": "e" * 64,
        },
        "interval": {"confidence": 0.95, "resampled": "identities", "replicates": 500, "seed": 0},
        "leaks": {
            "compared": {"evaluated": 36, "seen_in_training": None},
            "across_splits": [],
            "across_identities": [],
            "excluded": 0,
        },
        "reasons": suite_results.reasons,
        **suite_results.metrics,
    }


def full_document(context: EvaluationContext) -> dict[str, Any]:
    """Return results of every suite, with made-up numbers."""
    results = document(context)
    drop = {"similarity_drop": 0.1, "recall_at_1_drop": 0.2, "auc_drop": 0.05}
    corruption = {"severity": 3.5, "unit": "sigma, px", **drop, "interval": {"recall_at_1_drop": [0.1, 0.3]}}
    gain = {"recall_at_1_gain": 0.01, "auc_gain": None, "interval": {}}
    distribution = {"mean": 0.7, "std": 0.1, "percentiles": {"5": 0.5, "95": 0.9}}
    bcubed = {"precision": 0.9, "recall": 0.5, "f": 0.642}
    parts = {part: results[part] for part in ("retrieval", "verification")}
    slice_row = {
        "photos": 18,
        "identities": 6,
        **parts,
        "triplets": None,
        "reasons": {"triplets": "triplets: too few"},
    }
    point = {"similarity": 0.5, "dir": 0.6, "misidentified": 0.1, "rejected": 0.3, "far": None}
    return results | {
        "clustering": {
            "kmeans": {"k": 12, "photos": 36, "seed": 0, "nmi": 0.8, "ami": 0.71, "ari": 0.6, "purity": 0.9},
            "groups": {
                "threshold": 0.85,
                "threshold_source": "the bundle's high-precision threshold",
                "groups": 30,
                "identities": 12,
                "nmi": 0.7,
                "ami": 0.4321,
                "ari": 0.2,
                "purity": 0.9,
                "pairwise": None,
                "bcubed": bcubed,
            },
            "interval": {"groups.bcubed.f": [0.5, 0.7]},
        },
        "triplets": {"sampling": "all", "triplets": 9, "violation_rate": 0.0967, "average_margin": 0.2, "interval": {}},
        "overfitting": {"train_recall_at_1": 0.98, "test_recall_at_1": 0.84, "gap": 0.14, "interval": {}},
        "robustness": {
            "photos": 36,
            "seed": 0,
            "clean": {"recall_at_1": 0.9, "auc": 0.95},
            "corruptions": {"blur": corruption, "flip": corruption | {"severity": None, "unit": "mirrored"}},
            "sweeps": {"blur": [{"severity": s, "recall_at_1": 1 / s, "auc": 0.9} for s in (1.0, 2.0)]},
        },
        "tta": {
            "photos": 36,
            "plain": {"recall_at_1": 0.9, "auc": 0.95, "ms_per_photo": 1.4},
            "flip": gain | {"passes": 2, "ms_per_photo": 2.2, "by_source": dict.fromkeys("ab", gain | {"photos": 9})},
        },
        "separation": {
            "dunn": {"members": None, "centroids": 0.18, "centroids_to_mean": 0.33, "photos_dropped": 1},
            "silhouette": 0.08,
            "same": distribution,
            "different": distribution,
            "d_prime": 1.591,
            "interval": {"silhouette": [0.04, 0.12]},
        },
        "identification": {
            "rank_1": 0.56,
            "dir_at_far": {"1e-1": 0.25, "1e-2": None},
            "at_bundle_thresholds": {"balanced": point},
            "interval": {"dir_at_far.1e-1": [0.1, 0.4]},
        },
        "harmonic": {"prefixes": [{"components": 2, "bytes": 8, "saved_fraction": 0.33, **parts}]},
        "slices": {"columns": {"coat": [{"value": "tabby", **slice_row}, {"value": "black", **slice_row}]}},
        "lfw": {
            "view_2": {"accuracy": 0.9123, "standard_error": 0.0041, "folds": [{"accuracy": 0.9, "threshold": 0.5}]},
            "view_1": None,
            "reasons": {"view_1": "pairsDevTest.txt is in none of the folders"},
        },
    }  # fmt: skip


class Reader(HTMLParser):
    """Collects the links, headings and texts of a page, and checks that its markup is well formed."""

    VOID = frozenset({"meta", "img", "source", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.alts: list[str] = []
        self.headings: list[int] = []
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append(tag)
        self.links += [value or "" for key, value in attrs if key in ("src", "href", "srcset", "action", "poster")]
        assert not any(key.startswith("on") for key, _ in attrs)
        if "id" in attributes:
            assert attributes["id"] not in self.ids
            self.ids.add(attributes["id"] or "")
        if tag == "img":
            self.alts.append(attributes["alt"] or "")
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data


@pytest.mark.slow
def test_report_is_self_contained_with_section_per_suite(context: EvaluationContext, tmp_path: Path):
    path = write_report(tmp_path / "out", full_document(context), context, context.scored_pairs)
    assert path == tmp_path / "out" / "report.html"
    page = Reader(path.read_text(encoding="utf-8"))
    assert set(SUITES) <= page.ids
    assert {"thresholds", "neighbors", "mistakes", "map", "data", "leaks"} <= page.ids
    assert "script" not in page.tags
    assert "link" not in page.tags
    inner = [link for link in page.links if link.startswith("#")]
    assert {link[1:] for link in inner} <= page.ids
    assert all(
        link.startswith(("data:image/png;base64,", "data:image/jpeg;base64,")) for link in set(page.links) - set(inner)
    )
    assert all(page.alts)
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(later - former <= 1 for former, later in zip(page.headings, page.headings[1:], strict=False))
    for text in ("0.4321", "9.67", "91.23", "+14.00", "1.5910", "64.20", "20.00"):
        assert text in page.text
    for reason in ("pairsDevTest.txt is in none of the folders", "too few", "takes 1,000 unknown photos"):
        assert reason in page.text


@pytest.mark.exhaustive
def test_report_has_both_color_schemes_and_png_files(context: EvaluationContext, tmp_path: Path):
    page = write_report(tmp_path, full_document(context), context, context.scored_pairs).read_text()
    assert "color-scheme: light dark" in page
    assert "@media (prefers-color-scheme: dark)" in page
    names = {path.stem for path in tmp_path.glob("*.png")}
    charts = {
        "similarity",
        "roc",
        "det",
        "accuracy",
        "reliability",
        "robustness",
        "sweeps",
        "slices_1",
        "map",
        "sizes",
    }
    assert names == charts | {"neighbors", "strangers", "selves"}
    dark = page.count('<source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,')
    assert dark == len(charts)
    assert len(set(re.findall(r'base64,([^"]+)', page))) >= 2 * len(charts)  # the dark ones are different
    for name in names:
        content = (tmp_path / f"{name}.png").read_bytes()
        assert content.startswith(PNG)
        assert (base64.b64encode(content).decode() in page) == (name in charts)


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_null_suite_shows_reason(context: EvaluationContext, suite: str):
    results = document(context, ()) | {"reasons": {suite: f"{suite}: too <few> photos"}, suite: None}
    page = Reader(render(results, Examples(context.table, {}), {}))
    assert suite in page.ids
    assert page.text.count("too <few> photos") == 2  # in the caveats, and in its section
    assert set(SUITES) & page.ids == {suite}


@pytest.mark.slow
def test_null_metrics_show_reasons(context: EvaluationContext):
    results = document(context)
    results["verification"]["tar_at_far"]["1e-4"] = None
    results["verification"]["probability"] = None
    for at_threshold in results["verification"]["at_bundle_thresholds"].values():
        at_threshold["on_validation"] |= {"far": None, "tar": None}
    results["verification"]["thresholds_fitted"] = False
    page = Reader(render(results, collect_examples(context, results), {}))
    for reason in (
        "takes 100,000 pairs of different identities",
        "validation: not known",
        "predicts no probability",
        "No thresholds were fitted",
    ):
        assert reason in page.text
    assert "None" not in page.text
    assert "nan" not in page.text


@pytest.mark.slow
def test_unknown_metric_is_shown_by_its_key(context: EvaluationContext):
    results = document(context)
    results["retrieval"]["novel"] = {"measure_of": 0.123456}
    results["verification"]["remark"] = "<b>"
    page = Reader(render(results, Examples(context.table, {}), {}))
    assert "novel, measure of" in page.text
    assert "0.1235" in page.text
    assert "<b>" in page.text


@pytest.mark.exhaustive
def test_escapes_names_from_data(mean_color_bundle: Path, tmp_path: Path):
    root = color_folder(tmp_path / "<script>alert(1)", identities=4)
    (root / "Person_00").rename(root / 'a "quote" & <img src=x onerror=y>')
    (root / "Person_01").rename(root / "b$\\alpha$ قطة 猫")
    context = context_in(root, mean_color_bundle)
    results = full_document(context)
    results["data"] |= {"sources": [str(root)], "skipped": ["<i>.png: empty", "x\udcff.png: empty"]}
    results["slices"]["columns"] = {"<th>": results["slices"]["columns"]["coat"]}
    path = write_report(tmp_path / "out", results, context, context.scored_pairs)
    page = Reader(path.read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert 'a "quote" & <img src=x onerror=y>' in page.text
    assert "\\xff.png" in page.text


@pytest.mark.exhaustive
def test_non_utf8_name_is_rendered(context: EvaluationContext, tmp_path: Path):
    names = (context.table.names[0] + "\udcff", *context.table.names[1:])
    renamed = dataclasses.replace(context, table=dataclasses.replace(context.table, names=names))
    page = write_report(tmp_path, document(renamed), renamed, renamed.scored_pairs).read_text(encoding="utf-8")
    assert "Person_00\\xff" in page


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize(("identities", "photos"), [(1, 1), (1, 3), (4, 1), (2, 2)])
def test_few_photos_still_make_report(identities: int, photos: int, mean_color_bundle: Path, tmp_path: Path):
    context = context_in(color_folder(tmp_path / "few", identities, photos), mean_color_bundle)
    try:
        scored_pairs = context.scored_pairs
    except NothingToMeasure:
        scored_pairs = None
    results = document(context)
    page = Reader(write_report(tmp_path / "out", results, context, scored_pairs).read_text())
    assert ("says nothing about others" in page.text) == any(results[suite] for suite in ("retrieval", "verification"))
    for suite, reason in results["reasons"].items():
        assert reason.removeprefix(f"{suite}: ") in page.text


@pytest.mark.exhaustive
def test_collapsed_embeddings_make_report(mean_color_bundle: Path, tmp_path: Path):
    context = context_in(color_folder(tmp_path / "same", 12, 5, spread=0.0), mean_color_bundle)
    collapsed = dataclasses.replace(context, embeddings=np.tile(context.embeddings[:1], (60, 1)))
    results = document(collapsed)
    page = Reader(write_report(tmp_path / "out", results, collapsed, collapsed.scored_pairs).read_text())
    assert "For 0.00\u00a0% of the photos the nearest other photo" in page.text
    assert "most often Person" in page.text


@pytest.mark.slow
def test_neighbor_grid_marks_matches_by_sign_frame_and_text(context: EvaluationContext):
    examples = collect_examples(context, document(context))
    assert examples.neighbors is not None
    rows = neighbor_grid(examples).split('<div class="row">')[1:]
    assert len(rows) == len(examples.neighbors.queries) == 10
    for row, correct in zip(rows, examples.neighbors.correct.tolist(), strict=True):
        marks = re.findall(r'class="tile (correct|wrong)".*?: (the same individual|another individual)".*?<b>(.) ', row)
        expected = {True: ("correct", "the same individual", "✓"), False: ("wrong", "another individual", "✗")}
        assert marks == [expected[match] for match in correct]


@pytest.mark.exhaustive
def test_deleted_photo_is_reported(context: EvaluationContext, tmp_path: Path):
    results = document(context)
    for photo in context.table.photos:
        assert isinstance(photo, Path)
        photo.unlink()
    page = write_report(tmp_path / "out", results, context, context.scored_pairs).read_text()
    assert "can no longer be read" in page
    assert (tmp_path / "out" / "neighbors.png").read_bytes().startswith(PNG)


def test_mistakes_come_only_from_pairs_file(tmp_path: Path, mean_color_bundle: Path):
    root = color_folder(tmp_path / "colors", identities=4)
    pairs_file = tmp_path / "pairs.txt"
    pairs_file.write_text("Person_00\t1\t2\nPerson_01\t1\tPerson_02\t1\nPerson_01\t1\tPerson_03\t2\n")
    context = build_context(Embedder(mean_color_bundle), scan_folders(root), EvaluationOptions(pairs_file=pairs_file))
    mistakes = collect_examples(context, document(context)).mistakes
    assert mistakes is not None
    assert (len(mistakes.negatives), len(mistakes.positives)) == (2, 1)


def verification_part(**changes: Any) -> dict[str, Any]:
    balanced = {
        "similarity": 0.5,
        "accuracy": 0.97,
        "far": 0.03,
        "tar": 0.97,
        "on_validation": {"far": 0.03, "tar": 0.97},
    }
    strict = balanced | {"similarity": 0.7, "far": 0.0001, "tar": 0.8}
    return {
        "auc": 0.991,
        "eer": 0.03,
        "eer_threshold": 0.52,
        "best_accuracy_threshold": 0.53,
        "different_pairs": 10_000,
        "thresholds_fitted": True,
        "at_bundle_thresholds": {"high_precision": strict, "balanced": balanced | changes, "high_recall": balanced},
        "interval": {"auc": [0.98, 0.995]},
    }


def minimal_results(**parts: Any) -> dict[str, Any]:
    data = {"identities": 200, "identities_seen_in_training": 0, "skipped": []}
    return {"data": data | parts.pop("data", {}), "reasons": {}, "leaks": None} | parts


def test_accuracy_sentence_has_intervals_and_most_severe_caveat():
    retrieval = {"recall_at_1": 0.931, "interval": {"recall_at_1": [0.9, 0.95]}}
    sentence = accuracy_sentence(minimal_results(retrieval=retrieval, verification=verification_part()))
    assert "93.10\u00a0%" in sentence
    assert "90.00 to 95.00\u00a0%" in sentence
    assert "99.10\u00a0%" in sentence
    assert sentence.endswith("99.50\u00a0%).")
    assert "only 23 identities" in accuracy_sentence(minimal_results(retrieval=retrieval, data={"identities": 23}))
    assert "with 1 identity that says nothing" in accuracy_sentence(
        minimal_results(retrieval=retrieval, data={"identities": 1})
    )
    trained = accuracy_sentence(
        minimal_results(retrieval=retrieval, data={"identities": 23, "identities_seen_in_training": 6})
    )
    assert "6 of the 23 identities were trained on" in trained
    assert "only" not in trained
    leaks = {"across_splits": [{}, {}], "across_identities": [], "excluded": 0}
    assert "2 pictures</a> may be leaked" in accuracy_sentence(minimal_results(retrieval=retrieval, leaks=leaks))
    assert "leaked" not in accuracy_sentence(minimal_results(retrieval=retrieval, leaks=leaks | {"excluded": 2}))
    assert accuracy_sentence(minimal_results()) == "Neither retrieval nor verification was measured."


def test_threshold_sentence_recommends_threshold_or_states_reason():
    assert "Set the threshold to <strong>0.500</strong> (balanced)" in threshold_sentence(
        minimal_results(verification=verification_part())
    )
    shifted = threshold_sentence(minimal_results(verification=verification_part(far=0.2)))
    assert "do not transfer" in shifted
    assert "6.7 times as many false accepts as on its validation photos" in shifted
    assert "<strong>0.520</strong>" in shifted
    fixed = threshold_sentence(minimal_results(verification=verification_part() | {"thresholds_fitted": False}))
    assert "No threshold was ever fitted" in fixed
    assert "No threshold can be recommended" in threshold_sentence(minimal_results(verification=None))


@pytest.mark.parametrize(
    ("far", "tar", "pairs", "clause"),
    [
        (0.03, 0.97, 10_000, ""),
        (0.06, 0.97, 10_000, ""),  # twice as many may be chance
        (0.0601, 0.97, 10_000, "2.0 times as many false accepts"),
        (0.0601, 0.97, 100, ""),  # six pairs say little
        (0.03, 0.91, 10_000, "accepted 97.00\u00a0% of same pairs on its validation"),
        (0.001, 0.97, 10_000, "stricter than necessary"),
        (0.001, 0.97, 100, ""),
    ],
)
def test_threshold_shift_reports_significant_rate_changes(far: float, tar: float, pairs: int, clause: str):
    text = threshold_shift({"far": far, "tar": tar, "on_validation": {"far": 0.03, "tar": 0.97}}, pairs)
    assert clause in text
    assert bool(clause) == bool(text)
    assert threshold_shift({"far": far, "tar": tar, "on_validation": {"far": None, "tar": None}}, pairs) == ""


def test_threshold_shift_reports_false_accepts_without_any_on_validation():
    text = threshold_shift({"far": 0.01, "tar": 1.0, "on_validation": {"far": 0.0, "tar": 1.0}}, 10_000)
    assert text == "while it accepted no different pairs on its validation photos"


@pytest.mark.slow
def test_failing_identities_match_slow_reference(context: EvaluationContext):
    results = document(context)
    examples = collect_examples(context, results)
    worst = examples.failing[0]
    labels, similarity = context.labels, context.embeddings @ context.embeddings.T
    np.fill_diagonal(similarity, -2)
    wrong = labels[similarity.argmax(1)] != labels
    mask = labels == context.table.names.index(f"colors/{worst.identity}")
    assert (worst.missed, worst.photos) == ((wrong & mask).sum(), mask.sum())
    assert examples.identities_without_miss == len(set(range(12)) - set(labels[wrong].tolist()))
    nearest_labels = labels[similarity.argmax(1)][wrong & mask]
    assert context.table.names.index(f"colors/{worst.confused_with}") in nearest_labels
    assert worst.identity in failure_sentence(results, examples)
    assert worst.identity in summary_sentences(results, examples)[1]
    part = {"photos": 9, "identities": 3, "retrieval": results["retrieval"] | {"recall_at_1": 0.25}}
    better_part = part | {"retrieval": results["retrieval"] | {"recall_at_1": 0.5}}
    columns = {
        "size": [better_part | {"value": "small"}],
        "coat": [part | {"value": "tabby"}, better_part | {"value": "black"}],
        "sex": [{"value": "f", "retrieval": None}],
    }
    sliced = results | {"slices": {"columns": columns}}
    assert "coat</bdi> is <strong><bdi>tabby</bdi></strong>: recall@1 25.00" in failure_sentence(sliced, examples)
    without = dataclasses.replace(examples, failing=(), searched_identities=0)
    assert "most similar pair of different identities" in failure_sentence(results, without)
    assert "fails for no identity" in failure_sentence(
        results, dataclasses.replace(examples, failing=(), searched_identities=12)
    )
    assert "unknown" in failure_sentence(results, dataclasses.replace(without, mistakes=None))


def test_wilson_low_equals_closed_form_and_penalizes_few_photos():
    # All of n missed: n / (n + z^2); none missed: 0.
    assert wilson_lower_bound(2, 2) == pytest.approx(2 / (2 + 1.96**2))
    assert wilson_lower_bound(0, 9) == pytest.approx(0.0, abs=1e-12)
    assert wilson_lower_bound(1, 1) < wilson_lower_bound(15, 22)


@pytest.mark.slow
def test_mistakes_show_probability_only_when_calibrated(context: EvaluationContext):
    results = document(context)
    assert "</strong>, probability" in render(results, collect_examples(context, results), {})
    threshold = Threshold(0.5, None, None)
    unfitted = Calibration(threshold, threshold, threshold, None, None, None, 0, 0)
    bundle = context.embedder.bundle
    changed = dataclasses.replace(bundle, metadata=dataclasses.replace(bundle.metadata, calibration=unfitted))
    uncalibrated = dataclasses.replace(context, embedder=Embedder(changed))
    results = document(uncalibrated)
    assert "</strong>, probability" not in render(results, collect_examples(uncalibrated, results), {})


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.98123, "98.12"), (0.0, "0.00"), (1.0, "100.00"), (0.00004, "0.0040"), (-0.1, "−10.00")],
)
def test_format_percent_formats_with_sign_and_precision(share: float, text: str):
    assert format_percent(share) == f"{text}\u00a0%"


def test_format_metric_formats_metrics_by_type():
    assert format_metric("auc", 0.98765) == "0.9877"
    assert format_metric("tar_at_far.1e-2", 0.5) == "50.00\u00a0%"
    assert format_metric("gap", -0.1) == "−10.00\u00a0points"
    assert format_metric("same_pairs", 1234567) == "1,234,567"
    assert format_metric("unheard_of", float("inf")) == "inf"
