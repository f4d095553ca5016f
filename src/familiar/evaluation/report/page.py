"""The HTML page: a summary, a table of contents, and a section per topic, in one self-contained file."""

import base64
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable
from familiar.evaluation.report.charts import CaptionedChart
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.sections.catalog import SECTIONS, Section
from familiar.evaluation.report.summary import caveats, summary_sentences
from familiar.evaluation.report.tables import name


def render(results: Mapping[str, Any], examples: Examples, charts: Mapping[str, CaptionedChart]) -> str:
    """Render the page of an `eval_results.json`; sections of suites that were not run are left out."""
    chart_markup = {key: _figure(captioned) for key, captioned in charts.items()}
    sections: list[tuple[Section, str]] = []
    for section in SECTIONS:
        if section.suite and not results.get(section.suite):
            body = _missing_suite(section.suite, results) if section.key in results else ""
        else:
            body = section.body(results, examples, chart_markup)
        if body:
            sections.append((section, body))
    contents = "".join(f'<li><a href="#{section.key}">{section.title}</a></li>' for section, _ in sections)
    section_markup = "".join(_section(section, body) for section, body in sections)
    summary = "".join(f"<p>{sentence}</p>" for sentence in summary_sentences(results, examples))
    notes = "".join(f"<li>{note}</li>" for note in caveats(results))
    caveat_list = f'<ul class="caveats">{notes}</ul>' if notes else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>familiar: evaluation</title><style>{_style()}</style></head><body><main>"
        f"<header><h1>Evaluation report</h1>{_facts(results)}</header>"
        f'<div class="summary" role="note" aria-label="Summary">{summary}</div>'
        f"{caveat_list}"
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>{section_markup}{_footer(results)}</main></body></html>'
    )


def _section(section: Section, body: str) -> str:
    return (
        f'<section id="{section.key}" aria-labelledby="{section.key}-title">'
        f'<h2 id="{section.key}-title">{section.title}</h2>'
        f'<p class="lead">{section.lead}</p>{body}</section>'
    )


def _style() -> str:
    return files("familiar.evaluation.report").joinpath("style.css").read_text(encoding="utf-8")


def _facts(results: Mapping[str, Any]) -> str:
    data, model = results["data"], results["model"]
    identities = "the test identities" if data["split"] == "test" else "all identities"
    resized = f", resized to {model['resize_px']} px first" if model.get("resize_px") else ""
    averaged = ", each photo averaged with its mirror image" if model.get("tta") == "flip" else ""
    return (
        f'<p class="facts">{name(model["network"])}, {model["embedding_dim"]} components, '
        f"{model['size_bytes'] / 1e6:.2f} MB, on {pluralize(data['photos'], 'photo')} of "
        f"{pluralize(data['identities'], 'identity')}: {identities} of "
        f"{', '.join(name(source) for source in data['sources'])}{averaged}{resized}.</p>"
    )


def _footer(results: Mapping[str, Any]) -> str:
    data, model, interval = results["data"], results["model"], results["interval"]
    return (
        f"<footer><p>Intervals: {100 * interval['confidence']:.0f} %, identities resampled "
        f"{interval['replicates']:,} times, seed {interval['seed']}. Recipe {name(model['recipe'])}; model "
        f"{escape(model['file_id'][:16])}, space {name(model['space_id'][:16])}, data "
        f"{escape(data['fingerprint'][:16])}. Every metric is in eval_results.json in the same folder.</p></footer>"
    )


def _missing_suite(suite: str, results: Mapping[str, Any]) -> str:
    reason = results["reasons"].get(suite, "no reason is known").removeprefix(f"{suite}: ")
    return f'<p class="missing">Could not be computed: {escape(printable(reason))}.</p>'


def _figure(captioned: CaptionedChart) -> str:
    light, dark = (base64.b64encode(png).decode() for png in (captioned.chart.light, captioned.chart.dark))
    width, height = captioned.chart.size_px
    entries = "".join(f"<li>{name(entry)}</li>" for entry in captioned.legend)
    legend = f'<ol class="legend">{entries}</ol>' if entries else ""
    return (
        f'<figure class="{"with-legend" if captioned.legend else "chart"}"><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">'
        f'<img src="data:image/png;base64,{light}" width="{width}" height="{height}" alt="{escape(captioned.alt)}">'
        f"</picture><figcaption>{escape(captioned.caption)}{legend}</figcaption></figure>"
    )
