"""Flash messages: a page reports the last change. A keyword and numbers travel in its URL, never a text."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import Request

from familiar.core.plural import pluralize
from familiar.gallery import Gallery

_KEYS = ("done", "count", "propagated", "left_out", "individual", "decision")
_MAX_DIGITS = 18  # fewer than SQLite's largest number has
_SENTENCES = {  # by `done`: the text before the individual's name, if there is one
    "named": "Now called",
    "merged": "Merged into",
    "moved": "{faces} moved to",
    "split": "{faces} split off as",
    "rejected": "{faces} removed from",
    "confirmed": "{faces} confirmed",
    "grouped": "Grouped: there are {individuals} now",
    "nothing-grouped": "No faces are similar enough to be grouped",
    "added": "The face was added",
    "boxed": "The box was saved; the face shows",
    "boxed-unassigned": "The box was saved; the face is unassigned now",
    "deleted": "The face was deleted",
    "undone": "Undone",
    "undone-name": "Undone: this is again",
    "undone-faces": "Undone: {faces} back with",
    "undone-unassigned": "Undone: {faces} unassigned again",
    "entered": "Entered:",
    "report-saved": "Saved:",
    "photos-added": "{faces} added to",
    "dismissed": "Remembered: it is not",
    "shown-again": "Shown again:",
    "reunited": "Home again:",
    "changed": "That question was out of date; here is the next one",
}


def url_after_change(gallery: Gallery, path: str, done: str, **values: int | None) -> str:
    """Add a flash message about a change to a local URL, and which decision it was, for the undo button.

    Call it in the transaction of the change.

    Args:
        gallery: that was changed.
        path, done, values: as for `url_with_flash`. Without `done`, the URL only says which decision it was.
    """
    last = gallery.decisions(1)
    return url_with_flash(path, done, **values, decision=last[0].number if last else None)


def url_with_flash(path: str, done: str, **values: int | None) -> str:
    """Add a flash message to a local URL, replacing the one that it has.

    Args:
        path: the URL.
        done: a key of the sentences.
        values: numbers: `count`, `propagated`, `left_out`, `identity` or `decision`; 0 and None are left out.

    >>> url_with_flash("/individuals?tab=named&done=merged&individual=3", "split", count=2, identity=7)
    '/individuals?tab=named&done=split&count=2&individual=7'
    """
    numbers = {key.replace("identity", "individual"): str(value) for key, value in values.items() if value}
    return _replace_flash(path, ({"done": done} if done else {}) | numbers)


def current_url(request: Request) -> str:
    """Return the requested URL without its flash message."""
    return _replace_flash(f"{request.url.path}?{request.url.query}", {})


def read_flash(gallery: Gallery, query: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the flash message of a URL's query; None if there is none, or it is invalid.

    Returns:
        `text`: the message without the individual's name. `identity`: the individual that the change is about, if any;
        `name`: its name or number. `propagated_faces`: number of similar faces that were changed too. `left_out`:
        number of photos that could not be used. `unassigned`: whether the faces belong to no individual now.
    """
    if (sentence := _SENTENCES.get(query.get("done", ""))) is None:
        return None
    count, identity = parse_number(query.get("count")) or 0, parse_number(query.get("individual"))
    return {
        "text": sentence.format(faces=pluralize(count, "face"), individuals=pluralize(count, "individual")),
        "identity": identity,
        "name": "" if identity is None else display_name(identity, gallery.names().get(identity)),
        "propagated_faces": parse_number(query.get("propagated")) or 0,
        "left_out": parse_number(query.get("left_out")) or 0,
        "unassigned": query["done"] == "rejected",
    }


def display_name(identity: int, name: str | None) -> str:
    """Return how an individual is shown on a page: its name, else its number."""
    return name or f"#{identity}"


def _replace_flash(url: str, values: Mapping[str, str]) -> str:
    parts = urlsplit(url)
    others = [(key, value) for key, value in parse_qsl(parts.query) if key not in _KEYS]
    query = urlencode([*others, *values.items()])
    return parts._replace(query=query).geturl()


def parse_number(text: str | None) -> int | None:
    """Return a number of a URL; None if it is missing or none."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None
