"""`familiar match`: find the lost pets that a found one may be."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.commands.gallery.arguments import format_similarity, label, open_gallery
from familiar.cli.console import list_skipped, note, print_json
from familiar.cli.options import FILE, album_model_option, embedding_options, exclude_option, json_option
from familiar.core.errors import FamiliarError, NoFaceFound, UnreadablePhoto
from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.integrations.lost_pets.candidates import Candidate
    from familiar.integrations.lost_pets.found_pets import FoundPet


@click.command()
@click.argument("photos", metavar="FOUND...", nargs=-1, required=True, type=FILE)
@click.option("--gallery", "-g", "folder", required=True, type=FILE, help="The gallery of the lost pets.")
@album_model_option
@click.option("-k", "k", type=click.IntRange(min=1), default=5, show_default=True, help="Maximum number of candidates.")
@click.option("--species", metavar="NAME", help="Only lost pets of this species, such as cat.")
@click.option("--place", "location", metavar="TEXT", help="Only pets lost at a place that contains this text.")
@click.option("--since", metavar="DATE", help="Only pets lost then or later: 2026, 2026-05, 2026-05-31.")
@click.option("--until", metavar="DATE", help="Only pets lost then or earlier.")
@click.option(
    "--not",
    "dismissed",
    multiple=True,
    metavar="NAME",
    help="Not this lost pet; may be repeated. Remembered if the found pet is in the gallery.",
)
@click.option("--save", "name", metavar="NAME", help="Store the found pet in the gallery under this name.")
@click.option("--found-at", metavar="PLACE", default="", help="Where it was found, for --save and the report.")
@click.option("--found-on", metavar="DATE", default="", help="When it was found, for --save and the report.")
@click.option(
    "--report", "output", type=FILE, metavar="FOLDER", help="Write a printable page for each found pet to this folder."
)
@click.option("--contact", is_flag=True, help="Show the owners' and finders' contact on the printable pages.")
@exclude_option
@embedding_options
@json_option
def match(
    photos: tuple[Path, ...],
    folder: Path,
    models: tuple[str, ...],
    k: int,
    species: str | None,
    location: str | None,
    since: str | None,
    until: str | None,
    dismissed: tuple[str, ...],
    name: str | None,
    found_at: str,
    found_on: str,
    output: Path | None,
    contact: bool,
    exclude: tuple[str, ...],
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Find the lost pets that a found one may be.

    FOUND: photos of one pet, or a folder of them, or a folder with one subfolder per found pet. The gallery has the
    lost pets: each named identity, unless `familiar gallery register` says that it is found or home. A pet whose place,
    date or species is not known passes every filter. Without --save nothing is stored.

    \b
    Example:
      familiar match found.jpg --gallery missing
      familiar match found --gallery missing --report pages
    """
    from datetime import date

    from familiar.integrations.lost_pets.candidates import PetFilter
    from familiar.integrations.lost_pets.found_pets import (
        list_found_pets,
        save_found_pet,
        search_found_pet,
        write_pages,
    )
    from familiar.integrations.lost_pets.reports import Report

    only = PetFilter(species or "", location or "", since or "", until or "")
    report = Report("found", species or "", found_at, found_on) if name or found_at or found_on else None
    groups, without_photo = list_found_pets(photos, exclude)
    if len(groups) > 1 and (report is not None or dismissed):
        raise click.UsageError("--save, --found-at, --found-on and --not are for one found pet; give its photos alone")
    pets: list[FoundPet] = []
    skipped: list[FamiliarError] = [*without_photo]
    with open_gallery(folder, models or None, providers=providers) as gallery:
        face_detector = gallery.detector(detector, detector_model, for_query=name is None)
        numbers = list(map(gallery.resolve_identity, dismissed))
        for group, paths in groups.items():
            try:
                if name is not None and report is not None:
                    save_found_pet(gallery, paths, face_detector, name, report, flip=tta)
                pets.append(
                    search_found_pet(
                        gallery,
                        group,
                        paths,
                        face_detector,
                        k,
                        only=only,
                        report=report,
                        dismissed=numbers,
                        flip=tta,
                    )
                )
            except (NoFaceFound, UnreadablePhoto) as error:
                if len(groups) == 1:
                    raise
                skipped.append(error)
        list_skipped([*skipped, *(error for pet in pets for error in pet.skipped)])
        if not pets:
            raise UnreadablePhoto(f"{photos[0]}: shows no found pet; the lines above say why")
        today = date.today().isoformat()
        pages = [] if output is None else write_pages(gallery, pets, output, today, with_contact=contact)
    if as_json:
        print_json([_document(pet) for pet in pets])
    for pet in [] if as_json else pets:
        _print(pet)
    for page in pages:
        note(f"{page}: open it in a browser, or print it")


def _document(pet: "FoundPet") -> dict[str, Any]:
    """Return what --json prints about one found pet."""
    from familiar.integrations.lost_pets.register_table import report_fields

    ranking, photos = pet.ranking, [*map(str, pet.faces)]
    return {
        "found": pet.label,
        "identity": pet.identity,
        "report": report_fields(pet.report),
        "photos": photos,
        "candidates": [
            asdict(each.match)
            | {
                "report": report_fields(each.pet.report),
                "photo": photos[each.photo],
                "face": each.face,
                "pair_similarity": each.pair_similarity,
                "impossible_dates": each.impossible_dates,
            }
            for each in ranking.candidates
        ],
        "compared": ranking.compared,
        "not": [{"identity": each.identity, "name": each.name} for each in ranking.dismissed],
        "filtered": ranking.filtered,
    }


def _print(pet: "FoundPet") -> None:
    """Print one found pet and its candidates."""
    ranking = pet.ranking
    known = next((each.pet for each in ranking.candidates if each.match.known), None)
    if known is not None:
        answer = f"probably {label(known.identity, known.name)}"
    elif ranking.candidates:
        answer = "no lost pet is likely enough; look at the first ones all the same"
    else:
        answer = "there is no lost pet to compare it with"
    click.echo(f"{printable(pet.label)}: {answer}")
    for each in ranking.candidates:
        click.echo(f"  {_candidate_line(each)}")
    if ranking.dismissed:
        click.echo(f"  not: {', '.join(label(other.identity, other.name) for other in ranking.dismissed)}")
    if ranking.filtered:
        click.echo(f"  {pluralize(ranking.filtered, 'lost pet')} left out by the filter")


def _candidate_line(candidate: "Candidate") -> str:
    match, report = candidate.match, candidate.pet.report
    known = [text for text in (candidate.pet.species, report.reported_on, report.location) if text]
    known += ["lost after it was found" if candidate.impossible_dates else ""]
    details = ", ".join(printable(text) for text in known if text)
    similarity = format_similarity(match.mean, match.probability)
    return f"{label(match.identity, match.name)}: {similarity}" + (f" ({details})" if details else "")
