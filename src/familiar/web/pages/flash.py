"""What a page tells of the change before it. A word and a few numbers travel in its address, never a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import Request

from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.database.connection import Gallery
from familiar.web.pages.render import display_name, pluralize

_KEYS = ("done", "count", "carried", "who")
_DIGITS = 18  # fewer than SQLite's numbers have
_SENTENCES = {  # of `done`: what comes before the individual's name, where one is told
    "named": "Now called",
    "merged": "Merged into",
    "moved": "{faces} moved to",
    "split": "{faces} made into",
    "rejected": "{faces} taken out",
    "confirmed": "{faces} confirmed",
    "grouped": "Grouped: there are {individuals} now",
    "alone": "No faces are alike enough to be one individual's",
    "added": "The face was added",
    "boxed": "The box was saved; the face shows",
    "boxed-nobody": "The box was saved; the face is nobody's now",
    "deleted": "The face was deleted",
    "undone": "Undone",
    "changed": "That question had changed meanwhile; here is the next one",
}


@dataclass(frozen=True)
class FlashMessage:
    """`text`, then the individual it is about, if any, then how many faces nobody spoke of came along."""

    text: str
    identity: int | None
    name: str
    propagated_faces: int


def url_with_flash(path: str, done: str, *, count: int = 0, propagated: int = 0, identity: int | None = None) -> str:
    """A local path that tells of a change when it is opened.

    >>> told("/individuals?tab=named&done=merged&who=3", "split", count=2, who=7)
    '/individuals?tab=named&done=split&count=2&who=7'
    """
    words = {"done": done, "count": count or None, "carried": propagated or None, "who": identity}
    return _replace_flash(path, {key: str(word) for key, word in words.items() if word is not None})


def current_url(request: Request) -> str:
    """The path of the page that was asked for, with nothing told."""
    return _replace_flash(f"{request.url.path}?{request.url.query}", {})


def read_flash(gallery: Gallery, query: Mapping[str, str]) -> FlashMessage | None:
    """What an address tells; None where it is nothing, or nothing of ours."""
    sentence = _SENTENCES.get(query.get("done", ""))
    if sentence is None:
        return None
    who = _parse_number(query.get("who"))
    count = _parse_number(query.get("count")) or 0
    return FlashMessage(
        sentence.format(faces=pluralize(count, "face"), individuals=pluralize(count, "individual")),
        who,
        "" if who is None else display_name(who, load_assignments(gallery).names.get(who)),
        _parse_number(query.get("carried")) or 0,
    )


def _replace_flash(path: str, words: Mapping[str, str]) -> str:
    parts = urlsplit(path)
    kept = [(key, word) for key, word in parse_qsl(parts.query) if key not in _KEYS]
    query = urlencode([*kept, *words.items()])
    return parts._replace(query=query).geturl()


def _parse_number(word: str | None) -> int | None:
    return int(word) if word and word.isascii() and word.isdecimal() and len(word) <= _DIGITS else None
