"""The sections of the page in their order, each answering one question."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from familiar.evaluation.report import conditions, recognition
from familiar.evaluation.report.charts import side_by_side
from familiar.evaluation.report.examples import Evidence
from familiar.evaluation.report.labels import counted
from familiar.evaluation.report.photos import mistake_cards, neighbor_grid
from familiar.evaluation.report.tables import name

LISTED = 50

Body = Callable[[Mapping[str, Any], Evidence, Mapping[str, str]], str]


@dataclass(frozen=True)
class Section:
    """`body` is markup, empty where there is nothing to show. `suite`: whose figures it shows, if one's."""

    key: str
    title: str
    lead: str
    body: Body
    suite: str = ""


def _neighbors(_: Mapping[str, Any], evidence: Evidence, __: Mapping[str, str]) -> str:
    return neighbor_grid(evidence)


def _mistakes(_: Mapping[str, Any], evidence: Evidence, __: Mapping[str, str]) -> str:
    found = evidence.mistakes
    if found is None:
        return ""
    strangers = (
        mistake_cards(evidence, found.strangers, "one of two strangers")
        if len(found.strangers)
        else '<p class="absent">There are no strangers: all photos are of one identity.</p>'
    )
    selves = (
        mistake_cards(evidence, found.selves, "one of two photos of the same individual")
        if len(found.selves)
        else '<p class="absent">No identity has two photos.</p>'
    )
    return f"<h3>The most similar strangers</h3>{strangers}<h3>The least similar photos of one individual</h3>{selves}"


def _map(_: Mapping[str, Any], __: Evidence, drawn: Mapping[str, str]) -> str:
    return side_by_side(drawn, "map")


def _leaks(results: Mapping[str, Any], _: Evidence, __: Mapping[str, str]) -> str:
    leaks = results.get("leaks")
    if leaks is None:
        return '<p class="absent">Not checked.</p>'
    compared = leaks["compared"]
    seen = next((value for key, value in compared.items() if key != "judged"), None)
    against = (
        f"with one another and with {seen:,} others that the model was trained on or chosen by"
        if seen is not None
        else "with one another; what the model was trained on is not at hand"
    )
    parts = [f"<p>{counted(compared['judged'], 'photo')} were compared {against}.</p>"]
    for key, title in (
        ("across_splits", "Judged here, and seen before"),
        ("across_identities", "One picture under two names"),
    ):
        found = leaks.get(key) or []
        listed = [f"{_leak(leak)}" for leak in found]
        body = _list(listed) if found else "<p>No such picture was found.</p>"
        parts.append(f"<h3>{title}</h3>{body}")
    if excluded := leaks.get("excluded"):
        parts.append(f"<p>{counted(excluded, 'photo')} were left out for it.</p>")
    return "".join(parts)


def _leak(leak: Mapping[str, Any]) -> str:
    how = "the same file or pixels" if leak["exact"] else f"similarity {leak['similarity']:.3f}"
    photos = ", ".join(name(photo) for photo in leak["photos"])
    return f"{' and '.join(name(one) for one in leak['identities'])} ({how}): {photos}"


def _data(results: Mapping[str, Any], evidence: Evidence, drawn: Mapping[str, str]) -> str:
    photos = evidence.table.photos_per_identity
    low, high = int(photos.min()), int(photos.max())
    spread = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    data = results["data"]
    single = int((photos == 1).sum())
    only = f", {single:,} of them with one only" if single > 0 else ""
    said = f"{counted(data['identities'], 'identity')} with {spread} photos each{only}."
    return f"<p>{said}</p>" + side_by_side(drawn, "sizes")


def _left_out(results: Mapping[str, Any], _: Evidence, __: Mapping[str, str]) -> str:
    skipped = results["data"]["skipped"]
    return _list([name(reason) for reason in skipped]) if skipped else ""


def _list(lines: Sequence[str]) -> str:
    left = len(lines) - LISTED
    more = f"<li>and {left:,} more, in eval_results.json</li>" if left > 0 else ""
    return f'<ul class="listed">{"".join(f"<li>{line}</li>" for line in lines[:LISTED])}{more}</ul>'


SECTIONS = (
    Section(
        "verification",
        "Same or different?",
        "Two photos: one individual, or two?",
        recognition.verification,
        "verification",
    ),
    Section(
        "thresholds",
        "Which threshold to set",
        "From which similarity on two photos are taken for one individual, and what the bundle promised of it.",
        recognition.thresholds,
        "verification",
    ),
    Section(
        "retrieval",
        "Who is nearest?",
        "A photo is searched for among others: does its own individual come first?",
        recognition.retrieval,
        "retrieval",
    ),
    Section(
        "neighbors",
        "Ten photos and their nearest",
        "The first of each row is searched for; ✓ is the same individual, ✗ a stranger. Numbers are similarities.",
        _neighbors,
    ),
    Section(
        "mistakes",
        "Worst mistakes",
        "The pairs that the model gets most wrong. A wrong name in the data often stands here.",
        _mistakes,
    ),
    Section(
        "slices",
        "On whom it fails",
        "The same figures by what is known of the photos, the worst first. Photos are searched for among all; where "
        "pairs are judged, strangers are of the same slice.",
        conditions.slices,
        "slices",
    ),
    Section(
        "identification",
        "Naming, and not naming strangers",
        "Half of the individuals are known by a photo; the others should be named as nobody.",
        recognition.identification,
        "identification",
    ),
    Section(
        "clustering",
        "Groups",
        "Photos sorted by individual with no names given.",
        conditions.clustering,
        "clustering",
    ),
    Section("map", "Map", "Embeddings on a plane: who lies beside whom?", _map),
    Section(
        "robustness",
        "Bad photos",
        "What blur, noise and the like cost.",
        conditions.robustness,
        "robustness",
    ),
    Section(
        "tta",
        "Copies of a photo",
        "What averaging a photo's vector with those of its mirror image or crops gains, and what it costs.",
        conditions.tta,
        "tta",
    ),
    Section(
        "separation",
        "How far apart",
        "The room between individuals, measured against how widely each is spread.",
        conditions.separation,
        "separation",
    ),
    Section(
        "triplets",
        "Triplets",
        "A photo, another of the same individual, and a stranger: which of them is closer?",
        recognition.triplets,
        "triplets",
    ),
    Section(
        "overfitting",
        "Learned by heart?",
        "Individuals the model was trained on against others, in galleries of equal size.",
        conditions.overfitting,
        "overfitting",
    ),
    Section(
        "harmonic",
        "Shorter embeddings",
        "The first components alone, and what they save.",
        conditions.harmonic,
        "harmonic",
    ),
    Section("lfw", "Labeled Faces in the Wild", "By that benchmark's own rules.", recognition.lfw, "lfw"),
    Section("data", "The data", "What all of this stands on.", _data),
    Section("leaks", "Leaks", "Photos that give the answer away.", _leaks),
    Section("left-out", "Left out", "Photos that could not be judged, and why.", _left_out),
)  # fmt: skip
