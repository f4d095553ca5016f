"""A printable page about a found pet and the lost ones that it may be: one HTML file that opens offline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.core.likelihood import likelihood
from familiar.core.templating import render_template
from familiar.integrations.lost_pets.candidates import Candidate
from familiar.integrations.lost_pets.reports import Report

CHECKS = (
    "markings and coat",
    "color of the eyes",
    "ears, tail, scars",
    "size and sex",
    "collar",
    "microchip or tattoo",
)
"""What to compare on the animals themselves, on every page."""
PRINTED_SIDE_PX = 512  # of each picture

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PageCandidate:
    """One candidate on the page.

    Attributes:
        candidate: its similarity and report.
        photo: JPEG of the found pet, of the most similar pair of photos; None: it cannot be read.
        candidate_photo: JPEG of the candidate in this pair; None: it cannot be read.
    """

    candidate: Candidate
    photo: bytes | None
    candidate_photo: bytes | None


def printable_page(
    name: str, report: Report, candidates: Sequence[PageCandidate], printed_on: str, *, with_contact: bool = False
) -> str:
    """Make the page: each candidate with both photos side by side, both reports, and what to compare.

    Args:
        name: of the pet that was searched for.
        report: its report.
        candidates: the most similar first.
        printed_on: date, for the footer.
        with_contact: whether it shows how to reach owner and finder.

    Returns:
        A whole HTML document with its pictures and its style, without scripts. All texts are escaped.
    """
    return str(
        render_template(
            _TEMPLATES,
            "printable_page.html",
            name=name,
            report=report,
            candidates=candidates,
            printed_on=printed_on,
            with_contact=with_contact,
            checks=CHECKS,
            likelihood=likelihood,
        )
    )
