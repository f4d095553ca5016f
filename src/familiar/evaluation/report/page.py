"""The page: a verdict, a table of contents, and a section for each question; it needs no other file."""

import base64
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from familiar.core.terminal_text import printable
from familiar.evaluation.report.charts import Drawn
from familiar.evaluation.report.examples import Evidence
from familiar.evaluation.report.labels import counted
from familiar.evaluation.report.sections import SECTIONS, Section
from familiar.evaluation.report.summary import doubts, verdict
from familiar.evaluation.report.tables import name


def render(results: Mapping[str, Any], evidence: Evidence, drawn: Mapping[str, Drawn]) -> str:
    """The page of an `eval_results.json`; sections of suites that were not run are left out."""
    figures = {key: _chart(one) for key, one in drawn.items()}
    shown: list[tuple[Section, str]] = []
    for section in SECTIONS:
        if section.suite and not results.get(section.suite):
            body = _missing(section.suite, results) if section.key in results else ""
        else:
            body = section.body(results, evidence, figures)
        if body:
            shown.append((section, body))
    contents = "".join(f'<li><a href="#{one.key}">{one.title}</a></li>' for one, _ in shown)
    sections = "".join(
        f'<section id="{one.key}" aria-labelledby="{one.key}-title"><h2 id="{one.key}-title">{one.title}</h2>'
        f'<p class="lead">{one.lead}</p>{body}</section>'
        for one, body in shown
    )
    said = "".join(f"<p>{sentence}</p>" for sentence in verdict(results, evidence))
    notes = "".join(f"<li>{note}</li>" for note in doubts(results))
    noted = f'<ul class="doubts">{notes}</ul>' if notes else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>familiar: evaluation</title><style>{_style()}</style></head><body><main>"
        f"<header><h1>How well it tells individuals apart</h1>{_facts(results)}</header>"
        f'<div class="verdict" role="note" aria-label="Verdict">{said}</div>'
        f"{noted}"
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>{sections}{_footer(results)}</main></body></html>'
    )


def _style() -> str:
    return files("familiar.evaluation.report").joinpath("style.css").read_text(encoding="utf-8")


def _facts(results: Mapping[str, Any]) -> str:
    data, model = results["data"], results["model"]
    side = "the test identities" if data["split"] == "test" else "all identities"
    resized = f", brought to {model['resize_px']} px first" if model.get("resize_px") else ""
    twice = ", each photo averaged with its mirror image" if model.get("tta") == "flip" else ""
    return (
        f'<p class="facts">{name(model["network"])}, {model["embedding_dim"]} components, '
        f"{model['size_bytes'] / 1e6:.2f} MB, on {counted(data['photos'], 'photo')} of "
        f"{counted(data['identities'], 'identity')}: {side} of "
        f"{', '.join(name(source) for source in data['sources'])}{twice}{resized}.</p>"
    )


def _footer(results: Mapping[str, Any]) -> str:
    data, model, interval = results["data"], results["model"], results["interval"]
    return (
        f"<footer><p>Intervals: {100 * interval['confidence']:.0f} %, identities resampled "
        f"{interval['replicates']:,} times, seed {interval['seed']}. Recipe {name(model['recipe'])}; model "
        f"{escape(model['file_id'][:16])}, space {name(model['space_id'][:16])}, data "
        f"{escape(data['fingerprint'][:16])}. Every figure is in eval_results.json beside this page.</p></footer>"
    )


def _missing(suite: str, results: Mapping[str, Any]) -> str:
    reason = results["reasons"].get(suite, "no reason is known").removeprefix(f"{suite}: ")
    return f'<p class="absent">Could not be computed: {escape(printable(reason))}.</p>'


def _chart(drawn: Drawn) -> str:
    light, dark = (base64.b64encode(one).decode() for one in (drawn.chart.light, drawn.chart.dark))
    width, height = drawn.chart.size_px
    key = "".join(f"<li>{name(one)}</li>" for one in drawn.key)
    key = f'<ol class="key">{key}</ol>' if key else ""
    return (
        f'<figure class="{"keyed" if drawn.key else "chart"}"><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">'
        f'<img src="data:image/png;base64,{light}" width="{width}" height="{height}" alt="{escape(drawn.alt)}">'
        f"</picture><figcaption>{escape(drawn.caption)}{key}</figcaption></figure>"
    )
