"""Report sections: the data, train/test leakage, and skipped photos."""

from collections.abc import Mapping, Sequence
from typing import Any

from familiar.core.plural import pluralize
from familiar.evaluation.report.charts import side_by_side
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import name

MAX_LISTED = 50


def data(results: Mapping[str, Any], examples: Examples, charts: Mapping[str, str]) -> str:
    """Render the numbers of identities and photos."""
    photos = examples.table.photos_per_identity
    low, high = int(photos.min()), int(photos.max())
    photo_range = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    single = int((photos == 1).sum())
    single_note = f", {single:,} of them with only one" if single > 0 else ""
    identities = pluralize(results["data"]["identities"], "identity")
    return f"<p>{identities} with {photo_range} photos each{single_note}.</p>" + side_by_side(charts, "sizes")


def leaks(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render the result of the leak check."""
    found_leaks = results.get("leaks")
    if found_leaks is None:
        return '<p class="missing">Not checked.</p>'
    compared = found_leaks["compared"]
    seen = compared["seen_in_training"]
    compared_with = (
        f"with one another and with {seen:,} other photos that the model was trained on or selected by"
        if seen is not None
        else "with one another; the photos that the model was trained on are not available"
    )
    parts = [f"<p>{pluralize(compared['evaluated'], 'photo')} were compared {compared_with}.</p>"]
    for key, title in (
        ("across_splits", "Pictures seen in training"),
        ("across_identities", "Pictures with two identities"),
    ):
        lines = [_leak(leak) for leak in found_leaks.get(key) or []]
        parts.append(f"<h3>{title}</h3>{_list(lines) if lines else '<p>No such picture was found.</p>'}")
    if excluded := found_leaks.get("excluded"):
        parts.append(f"<p>{pluralize(excluded, 'photo')} were excluded because of leaks.</p>")
    return "".join(parts)


def skipped_photos(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render the photos that could not be evaluated, with their reasons."""
    skipped = results["data"]["skipped"]
    return _list([name(reason) for reason in skipped]) if skipped else ""


def _leak(leak: Mapping[str, Any]) -> str:
    match = "the same file or pixels" if leak["exact"] else f"similarity {leak['similarity']:.3f}"
    identities = " and ".join(name(identity) for identity in leak["identities"])
    photos = ", ".join(name(photo) for photo in leak["photos"])
    return f"{identities} ({match}): {photos}"


def _list(lines: Sequence[str]) -> str:
    remaining = len(lines) - MAX_LISTED
    more = f"<li>and {remaining:,} more, in eval_results.json</li>" if remaining > 0 else ""
    return f'<ul class="listed">{"".join(f"<li>{line}</li>" for line in lines[:MAX_LISTED])}{more}</ul>'
