"""The HTML page: a summary, a table of contents, and a section per topic, in one self-contained file."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from familiar.evaluation.plots.chart import Chart
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.sections import SECTIONS, Section
from familiar.evaluation.report.summary import caveats, summary_sentences
from familiar.evaluation.report.templating import render_template
from familiar.evaluation.results import EvaluationResults


def render(results: EvaluationResults, examples: Examples, charts: Mapping[str, Chart]) -> str:
    """Render the page; sections of suites that were not run are left out."""
    bodies = [(section, render_section(section, results, examples, charts)) for section in SECTIONS]
    page = render_template(
        "page.html",
        results=results,
        style=Markup(files("familiar.evaluation.report").joinpath("style.css").read_text(encoding="utf-8")),
        summary=summary_sentences(results, examples),
        caveats=caveats(results),
        sections=[(section, body) for section, body in bodies if body],
    )
    return str(page)


def render_section(
    section: Section, results: EvaluationResults, examples: Examples, charts: Mapping[str, Chart]
) -> Markup:
    """Render the body of a section; empty if there is nothing to show."""
    suite = section.shown_suite
    if suite and suite not in results.suites:
        if section.key != suite or not results.has_suite(suite):
            return Markup()
        reason = results.reasons[suite].removeprefix(f"{suite}: ")
        return render_template("sections/unmeasured_suite.html", reason=reason)
    values = section.values(results, examples)
    if values is None:
        return Markup()
    shown: dict[str, Any] = {"results": results, "examples": examples, "section": section, "charts": charts, **values}
    return render_template(f"sections/{section.key}.html", **shown)
