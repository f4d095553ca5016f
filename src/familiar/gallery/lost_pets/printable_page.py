"""A printable page about a found pet and the lost ones that it may be: one HTML file that opens offline."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from familiar.core.html import image
from familiar.core.likelihood import likelihood
from familiar.core.terminal_text import printable
from familiar.gallery.lost_pets.candidates import Candidate
from familiar.gallery.lost_pets.reports import Report

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

_STYLE = """
@page { size: A4; margin: 14mm; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 46rem; color: #1b1a18; background: #fff;
  font: 1rem/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 0 0 .25rem; }
p { margin: 0 0 .5rem; }
section { border-top: 2px solid #1b1a18; margin-top: 1rem; padding-top: .75rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
figure { margin: 0; }
figure img { width: 100%; aspect-ratio: 1; object-fit: contain; background: #f1efea; border: 1px solid #bbb6ac; }
.missing { display: grid; place-items: center; aspect-ratio: 1; border: 1px solid #bbb6ac; color: #615c54; }
figcaption { font-weight: 600; margin: .25rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .75rem; margin: .25rem 0 .5rem;
  font-size: .9rem; }
dt { color: #615c54; }
dd { margin: 0; }
ul.checks { list-style: none; padding: 0; margin: .5rem 0; columns: 2; font-size: .9rem; }
ul.checks li::before { content: "\\2610\\00a0"; }
footer { margin-top: 1rem; color: #615c54; font-size: .85rem; }
@media print { body { padding: 0; max-width: none; font-size: 11pt; } section { break-inside: avoid; }
  section + section { break-before: page; } }
@media (max-width: 30rem) { ul.checks { columns: 1; } }
"""


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
    title = f"{'Found' if report.status == 'found' else 'Lost'}: {printable(name)}"
    sections = [_section(name, report, each, index, with_contact) for index, each in enumerate(candidates, 1)]
    if not sections:
        sections = ["<section><p>No pet of the register can be compared with it.</p></section>"]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(_count(len(candidates)))}</p>\n"
        + "\n".join(sections)
        + "\n</main>\n<footer>"
        f"Printed on {escape(printed_on)}. The order is by the similarity of the faces, which is no proof: a person "
        "decides, on the animal itself.</footer>\n</body>\n</html>\n"
    )


def _count(candidates: int) -> str:
    if candidates == 1:
        return "One possible match. Compare both animals before anybody is called."
    return f"{candidates} possible matches, the most similar first." if candidates else ""


def _section(name: str, report: Report, each: PageCandidate, index: int, with_contact: bool) -> str:
    candidate = each.candidate
    match = candidate.match
    probability = (
        "This model was never calibrated, so there is no probability."
        if match.probability is None
        else f"{likelihood(match.probability).capitalize()} the same: {match.probability:.1%}."
    )
    warning = (
        "<p><b>By its dates it was found before it was lost: check them.</b></p>" if candidate.impossible_dates else ""
    )
    checks = "".join(f"<li>{escape(check)}</li>" for check in CHECKS)
    return (
        f"<section>\n<h2>{index}. {escape(printable(candidate.pet.label))}</h2>\n"
        f"<p>{escape(probability)} Similarity of all photos {match.mean:.3f}, of these two "
        f'{candidate.pair_similarity:.3f}.</p>\n{warning}<div class="pair">\n'
        f"{_figure(each.photo, name, report, with_contact)}\n"
        f"{_figure(each.candidate_photo, candidate.pet.label, candidate.pet.report, with_contact)}\n</div>\n"
        f'<p>Compare, and tick what agrees:</p>\n<ul class="checks">{checks}</ul>\n</section>'
    )


def _figure(jpeg: bytes | None, name: str, report: Report, with_contact: bool) -> str:
    caption = escape(printable(name))
    picture = '<div class="missing">The photo cannot be read</div>' if jpeg is None else image(jpeg, name)
    when, where = ("Found on", "Found at") if report.status == "found" else ("Lost on", "Lost at")
    fields = [("Species", report.species), (when, report.reported_on), (where, report.location), ("Note", report.note)]
    fields += [("Contact", report.contact)] if with_contact else []
    rows = "".join(f"<dt>{label}</dt><dd>{escape(printable(text))}</dd>" for label, text in fields if text)
    return f"<figure>{picture}<figcaption>{caption}</figcaption>{f'<dl>{rows}</dl>' if rows else ''}</figure>"
