"""`familiar inspect`: what is in a folder of labeled photos."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.console import StatusLine, print_json
from familiar.cli.options import FILE, data_argument, data_spec, json_option, limit_options
from familiar.core.cpu import available_cores
from familiar.core.terminal_text import printable

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.datasets.duplicates import Alike
    from familiar.datasets.inspection import Inspection, Spread

BAR = 40  # characters
IDENTITIES_SHOWN = 3  # with the most photos, and with the fewest
GROUPS_SHOWN = 10
PHOTOS_SHOWN = 4  # of one group
LINES_SHOWN = 20


@click.command()
@data_argument
@click.option(
    "--output",
    "-o",
    type=FILE,
    help="Folder for inspection.html, a page with pictures; made if missing.",
)
@limit_options
@json_option
def inspect(
    data: tuple[str, ...],
    output: Path | None,
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    as_json: bool,
) -> None:
    """What is in a folder of labeled photos.

    Counts identities and photos, measures sizes and values, finds photos that are there twice - under two
    names they are probably labeled wrongly - and lists what cannot be read.

    \b
    Example:
      familiar inspect photos/cats --output inspected
    """
    from familiar.datasets.inspection import inspect_table
    from familiar.datasets.inspection_page import write_page

    if output is not None:
        output.mkdir(parents=True, exist_ok=True)  # before anything is read, lest that be for nothing
    table = data_spec(data, identities, max_identities, max_photos).read()
    status = StatusLine()
    found = inspect_table(
        table,
        workers=min(available_cores(), 8),
        on_progress=lambda doing, done: status.show(f"{doing} {done:,}/{len(table):,} photos"),
    )
    status.clear()
    page = None if output is None else write_page(found, output)
    if as_json:
        print_json(found.as_dict() | ({} if page is None else {"page": page}))
        return
    for line in _lines(found):
        click.echo(line)
    if page is not None:
        click.echo(f"page: {printable(str(page))}")


def _lines(found: "Inspection") -> Iterable[str]:
    from familiar.datasets.inspection import photo_name

    table = found.table
    yield (f"{len(table)} photos of {len(table.names)} identities, {found.single} of them with one photo only")
    yield from _photos_per_identity(found)
    yield ""
    yield f"{'':26}{'smallest':>10}{'median':>10}{'largest':>10}"
    yield _spread("width, px", found.width_px)
    yield _spread("height, px", found.height_px)
    yield _spread("lowest value in a photo", found.lowest_value)
    yield _spread("mean value", found.mean_value)
    yield _spread("highest value", found.highest_value)
    yield ""
    yield f"stored as: {_counted(found.stored_as)}"
    yield f"sizes, px: {_counted(dict(list(found.common_sizes.items())[:4]))}"
    yield f"gray, whatever the file says: {found.colorless:,}"
    yield ""
    yield from _duplicates(found)
    yield ""
    yield from _listed("nearly one color", [photo_name(table, row) for row in found.blank])
    yield from _listed("unreadable", [printable(str(error)) for error in found.unreadable])
    for reason, count in sorted(table.ignored.items()):
        yield f"ignored, {reason}: {count:,}"


def _photos_per_identity(found: "Inspection") -> Iterable[str]:
    from familiar.datasets.inspection import histogram

    low, median, high = found.photos_per_identity
    yield f"photos per identity: {low} to {high}, median {median:g}"
    bins = histogram(found.table.photos_per_identity)
    most = max(one.identities for one in bins)
    for one in bins:
        photos = f"{one.low}" if one.low == one.high else f"{one.low} to {one.high}"
        # What is there at all has a bar.
        bar = "#" * -(-BAR * one.identities // most)
        yield f"{photos:>14} {one.identities:>7,} {bar}".rstrip()
    rows = found.largest_first
    for title, extreme in (("most", rows[:IDENTITIES_SHOWN]), ("fewest", rows[: -IDENTITIES_SHOWN - 1 : -1])):
        for name, count in extreme:
            yield f"{title:>14} {count:>7,} {printable(name)}"


def _spread(name: str, values: "Spread") -> str:
    low, median, high = values
    return f"{name:26}{low:>10,}{median:>10,g}{high:>10,}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in counts.items())


def _duplicates(found: "Inspection") -> Iterable[str]:
    from familiar.datasets.inspection import KINDS

    kinds = {kind: found.groups(kind) for kind in KINDS}
    yield f"{'duplicates':38}{'pictures':>10}{'photos':>10}"
    for kind, groups in kinds.items():
        photos = sum(len(alike.rows) for alike in groups)
        yield f"  {KINDS[kind]:36}{len(groups):>10,}{photos:>10,}"
    across = [alike for kind, groups in kinds.items() if kind.across for alike in groups]
    if across:
        yield "probably under a wrong name:"
        for alike in across[:GROUPS_SHOWN]:
            yield from _group(found, alike)
        if len(across) > GROUPS_SHOWN:
            yield f"  ... and {len(across) - GROUPS_SHOWN:,} more: see --output or --json"


def _group(found: "Inspection", alike: "Alike") -> Iterable[str]:
    from familiar.datasets.inspection import photo_name

    first, *others = alike.rows[:PHOTOS_SHOWN]
    yield f"  {photo_name(found.table, first)}"
    for row in others:
        yield f"    {'=' if alike.exact else '~'} {photo_name(found.table, row)}"
    if len(alike.rows) > PHOTOS_SHOWN:
        yield f"    ... and {len(alike.rows) - PHOTOS_SHOWN:,} more"


def _listed(title: str, lines: list[str]) -> Iterable[str]:
    yield f"{title}: {len(lines):,}"
    yield from (f"  {line}" for line in lines[:LINES_SHOWN])
    if len(lines) > LINES_SHOWN:
        yield f"  ... and {len(lines) - LINES_SHOWN:,} more: see --json"
