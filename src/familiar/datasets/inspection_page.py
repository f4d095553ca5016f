"""A self-contained HTML page of an inspection: numbers, a sample of photos, and duplicates."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

import cv2

from familiar.core.errors import FamiliarError
from familiar.core.files import make_folder, write_atomically
from familiar.core.terminal_text import printable
from familiar.core.types import Photo
from familiar.datasets.duplicates import DuplicateGroup
from familiar.datasets.folders import IdentityTable, PhotoRef, open_photo
from familiar.datasets.inspection import (
    DUPLICATE_KINDS,
    DuplicateKind,
    Inspection,
    MinMedianMax,
    histogram,
    photo_name,
)

SAMPLE_PX = 240
DUPLICATE_PX = 144
GROUPS_SHOWN = {True: 24, False: 8}  # by `across`: between identities, which are likely labeling errors, and within one
PHOTOS_SHOWN = 4  # of one group
EXTREMES = 4  # number of identities shown with the most photos, and with the fewest
IDENTITIES_LISTED = 20_000  # about a megabyte
LINES_LISTED = 200
_JPEG_QUALITY = 82


def write_page(inspection: Inspection, folder: Path) -> Path:
    """Write `inspection.html` into `folder`, which is made if missing, and return its path."""
    make_folder(folder)
    path = folder / "inspection.html"
    write_atomically(path, render(inspection).encode())
    return path


def render(inspection: Inspection) -> str:
    """Render the page with its pictures embedded; the photos shown are opened again."""
    table = inspection.table
    sections = [
        _warnings(inspection),
        _sample(inspection),
        _photos_per_identity(inspection),
        _files(inspection),
        _duplicates(inspection),
        _problem_lists(inspection),
    ]
    roots = sorted({name.partition("/")[0] for name in table.names})
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>familiar: inspection</title><style>{_STYLE}</style><main>"
        f"<h1>Inspection of {', '.join(_name(root) for root in roots)}</h1>"
        f"<p>{_count(len(table), 'photo')} of {_count(len(table.names), 'identity')}, "
        f"{inspection.single_photo_identities:,} of them with one photo only.</p>{''.join(sections)}</main></html>"
    )


def _warnings(inspection: Inspection) -> str:
    across = [group for group in inspection.duplicates if len(inspection.identity_names(group.rows)) > 1]
    warnings: list[str] = []
    if across:
        rows = {row for group in across for row in group.rows}
        warnings.append(
            f'{_count(len(rows), "photo")} may be labeled wrongly: <a href="#duplicates">pictures that two '
            "identities share</a>."
        )
    if inspection.unreadable:
        warnings.append(f'{_count(len(inspection.unreadable), "photo")} <a href="#left-out">cannot be read</a>.')
    if inspection.blank:
        warnings.append(f'{_count(len(inspection.blank), "photo")} <a href="#left-out">are blank</a>.')
    return "".join(f'<p class="warning">{text}</p>' for text in warnings)


def _sample(inspection: Inspection) -> str:
    tiles = "".join(_tile(inspection.table, row, SAMPLE_PX) for row in inspection.sample)
    return f'<h2>A sample</h2><div class="sample">{tiles}</div>'


def _photos_per_identity(inspection: Inspection) -> str:
    bins = histogram(inspection.table.photos_per_identity)
    most = max(bin_.identities for bin_ in bins)
    bars = "".join(
        f'<tr><th scope="row">{_range(bin_.low, bin_.high)}</th><td>{bin_.identities:,}</td>'
        f'<td class="bar">{_bar(bin_.identities / most)}</td></tr>'
        for bin_ in bins
    )
    rows = inspection.identities_by_size
    unlisted = len(rows) - IDENTITIES_LISTED
    rest = f"<p>{unlisted:,} more are in the output of <code>--json</code>.</p>" if unlisted > 0 else ""
    low, median, high = inspection.photos_per_identity
    most_photos = _identities("most photos", rows[:EXTREMES])
    fewest_photos = _identities("fewest photos", rows[: -EXTREMES - 1 : -1])
    return (
        f"<h2>Photos per identity</h2><p>{_range(low, high)}, median {median:g}.</p>"
        '<div class="pair"><table class="bars"><thead><tr><th scope="col">photos<th scope="col">identities<td></thead>'
        f"{bars}</table><div>{most_photos + fewest_photos if len(rows) > 1 else ''}</div></div>"
        f"<details><summary>All identities, the largest first</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="All identities">'
        f"{_identities('identity', rows[:IDENTITIES_LISTED])}</div>{rest}</details>"
    )


def _bar(share: float) -> str:
    return f'<i style="width:{share:.1%}"></i>' if share else ""


def _identities(heading: str, rows: Sequence[tuple[str, int]]) -> str:
    listed = "".join(f"<tr><td>{_name(name)}<td>{count:,}" for name, count in rows)
    return f'<table><thead><tr><th scope="col">{heading}<th scope="col">photos</thead>{listed}</table>'


def _files(inspection: Inspection) -> str:
    def spread(name: str, values: MinMedianMax) -> str:
        low, median, high = values
        return f'<tr><th scope="row">{name}<td>{low:,}<td>{median:,g}<td>{high:,}'

    def counted(heading: str, counts: dict[str, int]) -> str:
        rows = "".join(f'<tr><th scope="row">{escape(name)}<td>{count:,}' for name, count in counts.items())
        return f'<table><thead><tr><th scope="col">{heading}<th scope="col">photos</thead>{rows}</table>'

    stored = inspection.stored_as | ({"gray, regardless of mode": inspection.grayscale} if inspection.grayscale else {})
    return (
        "<h2>Sizes and values</h2><table><thead><tr><td>"
        '<th scope="col">smallest<th scope="col">median<th scope="col">largest</thead>'
        f"{spread('width, px', inspection.width_px)}{spread('height, px', inspection.height_px)}"
        f"{spread('lowest value in a photo', inspection.lowest_value)}{spread('mean value', inspection.mean_value)}"
        f'{spread("highest value", inspection.highest_value)}</table><div class="pair">'
        f"{counted('stored as', stored)}{counted('size, px', inspection.common_sizes)}</div>"
    )


def _duplicates(inspection: Inspection) -> str:
    groups_by_kind = {kind: inspection.duplicates_of_kind(kind) for kind in DUPLICATE_KINDS}
    rows = "".join(
        f'<tr><th scope="row">{DUPLICATE_KINDS[kind]}<td>{len(groups):,}'
        f"<td>{sum(len(group.rows) for group in groups):,}"
        for kind, groups in groups_by_kind.items()
    )
    shown = "".join(_examples(inspection, kind, groups) for kind, groups in groups_by_kind.items() if groups)
    return (
        '<h2 id="duplicates">Duplicates</h2><table><thead><tr><td>'
        f'<th scope="col">pictures<th scope="col">photos</thead>{rows}</table>{shown}'
    )


def _examples(inspection: Inspection, kind: DuplicateKind, groups: Sequence[DuplicateGroup]) -> str:
    most = GROUPS_SHOWN[kind.across]
    shown: list[str] = []
    for group in groups[:most]:
        tiles = "".join(_tile(inspection.table, row, DUPLICATE_PX) for row in group.rows[:PHOTOS_SHOWN])
        hidden = len(group.rows) - PHOTOS_SHOWN
        facts = ([] if kind.exact else [f"similarity {group.similarity:.3f}"]) + (
            [f"and {hidden:,} more"] if hidden > 0 else []
        )
        note = f"<p>{', '.join(facts)}</p>" if facts else ""
        shown.append(f'<div class="group"><div class="tiles">{tiles}</div>{note}</div>')
    shown_count = f" ({most} of {len(groups):,})" if len(groups) > most else ""
    return f'<h3>{DUPLICATE_KINDS[kind].capitalize()}{shown_count}</h3><div class="groups">{"".join(shown)}</div>'


def _problem_lists(inspection: Inspection) -> str:
    parts: list[str] = []
    if inspection.unreadable:
        reasons = [printable(str(error)) for error in inspection.unreadable]
        parts.append(f"<h3>Cannot be read</h3>{_list(reasons)}")
    if inspection.blank:
        names = [photo_name(inspection.table, row) for row in inspection.blank]
        parts.append(f"<h3>Nearly one color</h3>{_list(names)}")
    if inspection.look_alikes:
        parts.append(f"<h3>Names that look alike</h3>{_list([str(group) for group in inspection.look_alikes])}")
    if inspection.table.ignored:
        counts = [f"{reason}: {count:,}" for reason, count in sorted(inspection.table.ignored.items())]
        parts.append(f"<h3>Ignored</h3>{_list(counts)}")
    return f'<h2 id="left-out">Skipped or suspicious</h2>{"".join(parts)}' if parts else ""


def _list(lines: Sequence[str]) -> str:
    shown = "".join(f"<li><bdi>{escape(line)}</bdi>" for line in lines[:LINES_LISTED])
    hidden = len(lines) - LINES_LISTED
    return f"<ul>{shown}{f'<li>and {hidden:,} more' if hidden > 0 else ''}</ul>"


def _tile(table: IdentityTable, row: int, side_px: int) -> str:
    name = photo_name(table, row)
    identity, _, file = name.rpartition("/")
    caption = f"<figcaption>{_name(identity.partition('/')[2])}<small>{_name(file)}</small></figcaption>"
    return f"<figure>{_picture(table.photos[row], f'Photo {name}', side_px)}{caption}</figure>"


def _picture(photo: PhotoRef, alt: str, side_px: int) -> str:
    try:
        opened = open_photo(photo, min_side_px=side_px)
    except FamiliarError:  # changed since the inspection
        return '<div class="gone">can no longer be read</div>'
    width, height = _fitted_size(opened, side_px)
    encoded = base64.b64encode(_jpeg(opened, (width, height))).decode()
    return (
        f'<img src="data:image/jpeg;base64,{encoded}" width="{width}" height="{height}" '
        f'alt="{escape(alt)}" loading="lazy">'
    )


def _fitted_size(photo: Photo, side_px: int) -> tuple[int, int]:
    scale = min(1.0, side_px / max(photo.size_px))
    return max(1, round(photo.size_px[0] * scale)), max(1, round(photo.size_px[1] * scale))


def _jpeg(photo: Photo, size_px: tuple[int, int]) -> bytes:
    small = cv2.resize(photo.rgb_u8, size_px, interpolation=cv2.INTER_AREA)
    _, encoded = cv2.imencode(".jpg", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return encoded.tobytes()


def _name(text: str) -> str:
    """Escape a name and isolate it, so that right-to-left text does not affect the text around it."""
    return f"<bdi>{escape(printable(text))}</bdi>"


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --warning: #b4530922; --bar: light-dark(#3a6ea5, #7fb0e0); }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 60rem; margin: auto; padding: 1rem; }
bdi { overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; } h3 { margin: 1.5rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); font-weight: normal; }
thead th { font-weight: 600; } th:first-child, td:first-child { text-align: left; }
.bars th:first-child { white-space: nowrap; }
.bar { width: 55%; } .bar i { display: block; height: 1em; min-width: 1px; background: var(--bar); border-radius: 2px; }
figure { margin: 0; } img, .gone { display: block; border-radius: 6px; background: #8883; }
figcaption { font-size: .875rem; line-height: 1.3; margin-top: .25rem; }
figcaption small { display: block; opacity: .75; }
.sample { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 1rem .75rem; max-width: 46rem; }
.sample img { width: 100%; height: auto; aspect-ratio: 1; object-fit: contain; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); gap: 0 2rem; }
.pair { align-items: start; }
.groups { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.group { border: 1px solid var(--line); border-radius: 6px; padding: .75rem; }
.group p { margin: .5rem 0 0; font-size: .875rem; }
.tiles { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .75rem; }
.tiles img { max-width: 100%; height: auto; }
.gone { padding: 1rem; font-size: .875rem; }
.scroll { max-height: 24rem; overflow: auto; } summary { cursor: pointer; }
@media (max-width: 30rem) { th, td { padding: .3rem .35rem; } }
.warning { background: var(--warning); padding: .5rem .75rem; border-radius: 6px; margin: .5rem 0; }
"""
