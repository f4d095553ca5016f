"""`familiar inspect`: summarize a folder of labeled photos."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.console import StatusLine, print_json
from familiar.cli.options import FILE, data_argument, data_spec, json_option, limit_options, max_megapixels_option
from familiar.core.cpu import available_cores
from familiar.core.terminal_text import printable

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.datasets.duplicates import DuplicateGroup
    from familiar.datasets.inspection import Inspection, MinMedianMax

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
    help="Folder for inspection.html, a page with the photos; without it only the summary is printed.",
)
@click.option(
    "--csv",
    "csv_path",
    type=FILE,
    help="File for a table with one row per photo: identity, file, height, width, channels, format, bytes.",
)
@limit_options
@max_megapixels_option
@json_option
def inspect(
    data: tuple[str, ...],
    output: Path | None,
    csv_path: Path | None,
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    exclude: tuple[str, ...],
    as_json: bool,
) -> None:
    """Summarize a folder of labeled photos.

    DATA are folders with one subfolder per identity. Counts identities and photos, measures sizes and pixel values,
    finds duplicate photos (one that appears under two identities probably has a wrong label), and lists unreadable
    files.

    \b
    Example:
      familiar inspect photos/cats --output inspected
    """
    from familiar.datasets.inspection import inspect_table
    from familiar.datasets.inspection_page import write_page
    from familiar.datasets.photo_list import write_photo_list

    for folder in (output, csv_path and csv_path.parent):
        if folder is not None:  # first, so that a missing permission shows before the photos are read
            folder.mkdir(parents=True, exist_ok=True)
    table = data_spec(data, identities, max_identities, max_photos, exclude).read()
    status = StatusLine()
    inspection = inspect_table(
        table,
        workers=min(available_cores(), 8),
        on_progress=lambda doing, done: status.show(f"{doing} {done:,}/{len(table):,} photos"),
    )
    status.clear()
    page = None if output is None else write_page(inspection, output)
    if csv_path is not None:
        write_photo_list(inspection, csv_path)
    if as_json:
        files = {"page": page, "csv": csv_path}
        print_json(inspection.as_dict() | {name: path for name, path in files.items() if path is not None})
        return
    for line in _lines(inspection):
        click.echo(line)
    if page is not None:
        click.echo(f"page: {printable(str(page))}")
    if csv_path is not None:
        click.echo(f"table: {printable(str(csv_path))}")


def _lines(inspection: "Inspection") -> Iterable[str]:
    from familiar.datasets.inspection import photo_name

    table = inspection.table
    single = inspection.single_photo_identities
    yield f"{len(table)} photos of {len(table.names)} identities, {single} of them with one photo only"
    yield from _photos_per_identity(inspection)
    yield ""
    yield f"{'':26}{'smallest':>10}{'median':>10}{'largest':>10}"
    yield _spread("width, px", inspection.width_px)
    yield _spread("height, px", inspection.height_px)
    yield _spread("lowest value in a photo", inspection.lowest_value)
    yield _spread("mean value", inspection.mean_value)
    yield _spread("highest value", inspection.highest_value)
    yield ""
    yield f"stored as: {_counted(inspection.stored_as)}"
    yield f"sizes, px: {_counted(dict(list(inspection.common_sizes.items())[:4]))}"
    yield f"gray pixels only: {inspection.grayscale:,}"
    yield ""
    yield from _duplicates(inspection)
    yield ""
    yield from _listed("nearly one color", [photo_name(table, row) for row in inspection.blank])
    yield from _listed("unreadable", [printable(str(error)) for error in inspection.unreadable])
    yield from _listed("names that look alike", [str(group) for group in inspection.look_alikes])
    for reason, count in sorted(table.ignored.items()):
        yield f"ignored, {reason}: {count:,}"


def _photos_per_identity(inspection: "Inspection") -> Iterable[str]:
    from familiar.datasets.inspection import histogram

    low, median, high = inspection.photos_per_identity
    yield f"photos per identity: {low} to {high}, median {median:g}"
    bins = histogram(inspection.table.photos_per_identity)
    most = max(each.identities for each in bins)
    for each in bins:
        photos = f"{each.low}" if each.low == each.high else f"{each.low} to {each.high}"
        bar = "#" * -(-BAR * each.identities // most)  # rounded up, so that no bin is without a bar
        yield f"{photos:>14} {each.identities:>7,} {bar}".rstrip()
    rows = inspection.identities_by_size
    for title, extreme in (("most", rows[:IDENTITIES_SHOWN]), ("fewest", rows[: -IDENTITIES_SHOWN - 1 : -1])):
        for name, count in extreme:
            yield f"{title:>14} {count:>7,} {printable(name)}"


def _spread(name: str, values: "MinMedianMax") -> str:
    low, median, high = values
    return f"{name:26}{low:>10,}{median:>10,g}{high:>10,}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in counts.items())


def _duplicates(inspection: "Inspection") -> Iterable[str]:
    from familiar.datasets.inspection import DUPLICATE_KINDS

    groups_by_kind = {kind: inspection.duplicates_of_kind(kind) for kind in DUPLICATE_KINDS}
    yield f"{'duplicates':38}{'groups':>10}{'photos':>10}"
    for kind, groups in groups_by_kind.items():
        photos = sum(len(duplicates.rows) for duplicates in groups)
        yield f"  {DUPLICATE_KINDS[kind]:36}{len(groups):>10,}{photos:>10,}"
    across = [duplicates for kind, groups in groups_by_kind.items() if kind.across for duplicates in groups]
    if across:
        yield "probably labeled wrongly:"
        for duplicates in across[:GROUPS_SHOWN]:
            yield from _duplicate_group(inspection, duplicates)
        if len(across) > GROUPS_SHOWN:
            yield f"  ... and {len(across) - GROUPS_SHOWN:,} more: see --output or --json"


def _duplicate_group(inspection: "Inspection", duplicates: "DuplicateGroup") -> Iterable[str]:
    from familiar.datasets.inspection import photo_name

    first, *others = duplicates.rows[:PHOTOS_SHOWN]
    yield f"  {photo_name(inspection.table, first)}"
    for row in others:
        yield f"    {'=' if duplicates.exact else '~'} {photo_name(inspection.table, row)}"
    if len(duplicates.rows) > PHOTOS_SHOWN:
        yield f"    ... and {len(duplicates.rows) - PHOTOS_SHOWN:,} more"


def _listed(title: str, lines: list[str]) -> Iterable[str]:
    yield f"{title}: {len(lines):,}"
    yield from (f"  {line}" for line in lines[:LINES_SHOWN])
    if len(lines) > LINES_SHOWN:
        yield f"  ... and {len(lines) - LINES_SHOWN:,} more: see --json"
