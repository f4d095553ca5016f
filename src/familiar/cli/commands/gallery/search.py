"""`familiar gallery search`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import (
    embed_best_face,
    face_option,
    folder_argument,
    format_similarity,
    label,
    open_gallery,
)
from familiar.cli.console import print_json
from familiar.cli.options import FILE, album_model_option, embedding_options, json_option
from familiar.core.terminal_text import printable

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery import Filter, Gallery, Hit, Match


@click.command()
@folder_argument
@click.argument("photo", metavar="PHOTO", type=FILE)
@album_model_option
@click.option("-k", "k", type=click.IntRange(min=1), default=10, show_default=True, help="Maximum number of results.")
@click.option(
    "--by",
    type=click.Choice(["photo", "identity"]),
    default="photo",
    show_default=True,
    help="List the most similar photos or identities.",
)
@click.option(
    "--identity", "identities", multiple=True, metavar="IDENTITY", help="Only faces of this identity; may be repeated."
)
@click.option("--species", metavar="NAME", help="Only faces that were enrolled with this species.")
@click.option("--since", metavar="DATE", help="Only photos taken then or later: 2024, 2024-06, 2024-06-01T12:00:00.")
@click.option("--until", metavar="DATE", help="Only photos taken then or earlier; 2024-06 includes June.")
@click.option(
    "--prefix",
    type=int,
    metavar="N",
    help="Preselect candidates by the first N dimensions of the embeddings, one of the model's prefixes: faster.",
)
@face_option
@embedding_options
@json_option
def search(
    folder: Path,
    photo: Path,
    models: tuple[str, ...],
    k: int,
    by: str,
    identities: tuple[str, ...],
    species: str | None,
    since: str | None,
    until: str | None,
    prefix: int | None,
    face: int | None,
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Find who is in a photo, and similar photos.

    Embeds the best face of PHOTO. Prints the identity that it shows, or that none matches; then the most
    similar photos or, with --by identity, identities.

    \b
    Example:
      familiar gallery search album cat.jpg -k 5
    """
    if prefix is not None and by == "identity":
        raise click.UsageError("--prefix is for --by photo")
    with open_gallery(folder, models or None, providers=providers) as gallery:
        _check_prefix(gallery, prefix)
        only = _make_filter(gallery, identities, species, since, until)
        query = embed_best_face(gallery, photo, detector, detector_model, flip=tta, face=face, species=species)
        matches = gallery.identify(query, k, only=only)
        hits = gallery.search(query, k, only=only, prefix=prefix) if by == "photo" else []
        empty = not gallery.counts().faces
        which = "clusters of this species" if gallery.space.parts else "clusters"
    if as_json:
        known = next((match for match in matches if match.known), None)
        results = {"photos": list(map(asdict, hits))} if by == "photo" else {"identities": list(map(asdict, matches))}
        print_json({"known": None if known is None else asdict(known)} | results)
        return
    click.echo(_answer(folder, matches, only, which, empty=empty))
    for line in map(_photo_line, hits) if by == "photo" else map(_identity_line, matches):
        click.echo(line)


def _check_prefix(gallery: "Gallery", prefix: int | None) -> None:
    if prefix is not None and prefix not in gallery.space.prefixes:
        valid = ", ".join(map(str, gallery.space.prefixes))
        raise click.BadParameter(f"the model's valid prefixes are {valid}", param_hint="--prefix")


def _make_filter(
    gallery: "Gallery", identities: tuple[str, ...], species: str | None, since: str | None, until: str | None
) -> "Filter":
    from familiar.gallery import Filter

    numbers = tuple(map(gallery.resolve_identity, identities)) or None
    try:
        return Filter(numbers, species, since, until)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since, --until") from error


def _answer(folder: Path, matches: "list[Match]", only: "Filter", which: str, *, empty: bool) -> str:
    if empty:
        return f"no match: {folder} has no faces yet"
    if not matches:
        if not only.empty:
            return "no match: no identity passes the filter"
        return f"no match: there are no {which} yet; make them with: familiar gallery cluster {folder}"
    nearest = matches[0]
    name = label(nearest.identity, nearest.name)
    similarity = format_similarity(max(nearest.best, nearest.mean), nearest.probability)
    if nearest.known:
        return f"{name}: {similarity}"
    return f"no match: the most similar identity, {name}, is not similar enough ({similarity})"


def _photo_line(hit: "Hit") -> str:
    similarity = format_similarity(hit.similarity, hit.probability)
    return f"  {printable(hit.path)}  face {hit.face}, {label(hit.identity, hit.name)}: {similarity}"


def _identity_line(match: "Match") -> str:
    similarity = format_similarity(max(match.best, match.mean), match.probability)
    return f"  {label(match.identity, match.name)}: {similarity}, most similar face: {match.face}"
