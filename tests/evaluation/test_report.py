"""The report: three sentences, a section for every suite, self-contained, for any names and nulls."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

from familiar.core.calibration import Calibration, Threshold
from familiar.datasets.folders import scan_folders
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationContext, EvaluationOptions, build_context
from familiar.evaluation.report import write_report
from familiar.evaluation.report.examples import Examples, FailingIdentity, collect_examples
from familiar.evaluation.report.page import render, render_section
from familiar.evaluation.report.sections import SECTIONS
from familiar.evaluation.report.templating import render_template
from familiar.evaluation.results import EvaluationResults, Figure
from familiar.evaluation.verification_pairs import THRESHOLDS
from support.color_folders import color_folder
from support.evaluation_results import full_results, measured_results, with_figures

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
        "background",
        "pixels",
        "separation",
    ),
    *("identification", "harmonic", "slices", "lfw"),
)


def context_in(root: Path, bundle: Path) -> EvaluationContext:
    return build_context(Embedder(bundle), scan_folders(root), EvaluationOptions())


@pytest.fixture
def context(tmp_path: Path, mean_color_bundle: Path) -> EvaluationContext:
    return context_in(color_folder(tmp_path / "colors"), mean_color_bundle)


def all_results(context: EvaluationContext, column: str = "coat") -> EvaluationResults:
    """Return results of every suite, with made-up numbers."""
    stored, computed = full_results(), measured_results(context)
    coat = {"photos": 18, "identities": 6, "triplets": None, **parts(computed, "retrieval", "verification")}
    figures = {
        path: figure
        for path, figure in stored.figures.items()
        if not path.startswith(("retrieval.", "verification.", "slices.", "lfw.view_1", "clustering.groups.pairwise"))
    }
    results = replace(
        stored,
        model=computed.model,
        data=computed.data,
        leaks=computed.leaks,
        figures=figures | computed.figures,
        missing=computed.missing
        | {
            "identification.dir_at_far.1e-2": "takes 1,000 unknown photos",
            "lfw.view_1": "pairsDevTest.txt is in none of the folders",
            f"slices.columns.{column}.0.triplets": "triplets: too few",
        },
    )
    return with_figures(
        results,
        clustering={"groups.ami": 0.4321, "groups.pairwise": None, "groups.bcubed.f": 0.642},
        triplets={"violation_rate": 0.0967},
        overfitting={"gap": 0.14},
        robustness={"corruptions.blur.recall_at_1_drop": 0.2},
        background={"photos_without_face": 17},
        separation={
            "d_prime": 1.591,
            "same": {"minimum": 0.1357, "maximum": 0.9753},
            "different": {"minimum": -0.2468, "maximum": 0.8642},
        },
        slices={"columns": {column: [{"value": "tabby", **coat}, {"value": "black", **coat}]}},
        lfw={"view_2.accuracy": 0.9123, "view_1": None},
    )


def parts(results: EvaluationResults, *suites: str) -> dict[str, Figure]:
    """Return the figures of some suites, by path."""
    return {path: figure for path, figure in results.figures.items() if path.partition(".")[0] in suites}


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
    path = write_report(tmp_path / "out", all_results(context), context)
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
    assert "compared as they are." in page.text
    assert "In 17 other photos no face was found" in page.text
    for text in ("0.4321", "9.67", "91.23", "+14.00", "1.5910", "64.20", "20.00", "0.136", "0.975", "0.864"):
        assert text in page.text
    for reason in ("pairsDevTest.txt is in none of the folders", "too few", "takes 1,000 unknown photos"):
        assert reason in page.text


@pytest.mark.exhaustive
def test_report_has_both_color_schemes_and_png_files(context: EvaluationContext, tmp_path: Path):
    page = write_report(tmp_path, all_results(context), context).read_text()
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
    results = measured_results(context, (), reasons={suite: f"{suite}: too <few> photos"})
    page = Reader(render(results, Examples(context.table), {}))
    assert suite in page.ids
    assert page.text.count("too <few> photos") == 2  # in the caveats, and in its section
    assert set(SUITES) & page.ids == {suite}


@pytest.mark.slow
def test_null_metrics_show_reasons(context: EvaluationContext):
    results = measured_results(context)
    without_probability = {path: figure for path, figure in results.figures.items() if ".probability." not in path}
    unknown = {
        f"at_bundle_thresholds.{name}.on_validation.{rate}": None for name in THRESHOLDS for rate in ("far", "tar")
    }
    results = with_figures(
        replace(results, figures=without_probability),
        verification={"tar_at_far.1e-4": None, "probability": None, "thresholds_fitted": False, **unknown},
    )
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


def test_template_escapes_malicious_identity_name(context: EvaluationContext):
    name = "</bdi><script>alert(1)</script>"
    results = measured_results(context)
    examples = replace(collect_examples(context, results), failing=(FailingIdentity(name, 4, 3, name),))
    text = render(results, examples, {})
    assert "<script" not in text
    assert Reader(text).text.count(name) == 4  # in the summary and in the table of the most confused identities


def test_template_rejects_undefined_value():
    with pytest.raises(UndefinedError, match="charts"):
        render_template("sections/map.html")


@pytest.mark.exhaustive
def test_escapes_names_from_data(mean_color_bundle: Path, tmp_path: Path):
    root = color_folder(tmp_path / "<script>alert(1)", identities=4)
    (root / "Person_00").rename(root / 'a "quote" & <img src=x onerror=y>')
    (root / "Person_01").rename(root / "b$\\alpha$ قطة 猫")
    context = context_in(root, mean_color_bundle)
    results = all_results(context, "<th>")
    data = replace(results.data, sources=(str(root),), skipped=("<i>.png: empty", "x\udcff.png: empty"))
    results = replace(results, data=data)
    path = write_report(tmp_path / "out", results, context)
    page = Reader(path.read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert 'a "quote" & <img src=x onerror=y>' in page.text
    assert "\\xff.png" in page.text


@pytest.mark.exhaustive
def test_non_utf8_name_is_rendered(context: EvaluationContext, tmp_path: Path):
    names = (context.table.names[0] + "\udcff", *context.table.names[1:])
    renamed = replace(context, table=replace(context.table, names=names))
    page = write_report(tmp_path, measured_results(renamed), renamed).read_text(encoding="utf-8")
    assert "Person_00\\xff" in page


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize(("identities", "photos"), [(1, 1), (1, 3), (4, 1), (2, 2)])
def test_few_photos_still_make_report(identities: int, photos: int, mean_color_bundle: Path, tmp_path: Path):
    context = context_in(color_folder(tmp_path / "few", identities, photos), mean_color_bundle)
    results = measured_results(context)
    page = Reader(write_report(tmp_path / "out", results, context).read_text())
    assert ("says nothing about others" in page.text) == bool(results.suites)
    for suite, reason in results.reasons.items():
        assert reason.removeprefix(f"{suite}: ") in page.text


@pytest.mark.exhaustive
def test_collapsed_embeddings_make_report(mean_color_bundle: Path, tmp_path: Path):
    context = context_in(color_folder(tmp_path / "same", 12, 5, spread=0.0), mean_color_bundle)
    collapsed = replace(context, embeddings=np.tile(context.embeddings[:1], (60, 1)))
    results = measured_results(collapsed)
    page = Reader(write_report(tmp_path / "out", results, collapsed).read_text())
    assert "For 0.00\u00a0% of the photos the nearest other photo" in page.text
    assert "most often Person" in page.text


@pytest.mark.slow
def test_neighbor_grid_marks_matches_by_sign_frame_and_text(context: EvaluationContext):
    examples = collect_examples(context, measured_results(context))
    assert examples.neighbors is not None
    (section,) = (section for section in SECTIONS if section.key == "neighbors")
    rows = render_section(section, measured_results(context), examples, {}).split('<div class="row">')[1:]
    assert len(rows) == len(examples.neighbors) == 10
    for row, tiles in zip(rows, examples.neighbors, strict=True):
        marks = re.findall(r'class="tile (correct|wrong)".*?: (the same individual|another individual)".*?<b>(.) ', row)
        expected = {True: ("correct", "the same individual", "✓"), False: ("wrong", "another individual", "✗")}
        assert marks == [expected[bool(tile.correct)] for tile in tiles[1:]]


@pytest.mark.exhaustive
def test_deleted_photo_is_reported(context: EvaluationContext, tmp_path: Path):
    results = measured_results(context)
    for photo in context.table.photos:
        assert isinstance(photo, Path)
        photo.unlink()
    page = write_report(tmp_path / "out", results, context).read_text()
    assert "can no longer be read" in page
    assert (tmp_path / "out" / "neighbors.png").read_bytes().startswith(PNG)


def test_mistakes_come_only_from_pairs_file(tmp_path: Path, mean_color_bundle: Path):
    root = color_folder(tmp_path / "colors", identities=4)
    pairs_file = tmp_path / "pairs.txt"
    pairs_file.write_text("Person_00\t1\t2\nPerson_01\t1\tPerson_02\t1\nPerson_01\t1\tPerson_03\t2\n")
    context = build_context(Embedder(mean_color_bundle), scan_folders(root), EvaluationOptions(pairs_file=pairs_file))
    examples = collect_examples(context, measured_results(context))
    assert (len(examples.negatives or ()), len(examples.positives or ())) == (2, 1)


@pytest.mark.slow
def test_mistakes_show_probability_only_when_calibrated(context: EvaluationContext):
    results = measured_results(context)
    assert "</strong>, probability" in render(results, collect_examples(context, results), {})
    threshold = Threshold(0.5, None, None)
    unfitted = Calibration(threshold, threshold, threshold, None, None, None, 0, 0)
    bundle = context.model.bundle
    changed = replace(bundle, metadata=replace(bundle.metadata, calibration=unfitted))
    uncalibrated = replace(context, model=Embedder(changed))
    results = measured_results(uncalibrated)
    assert "</strong>, probability" not in render(results, collect_examples(uncalibrated, results), {})
