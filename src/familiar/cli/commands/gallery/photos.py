"""Commands that look at photos: `enroll`, `search`, `verify`, `migrate`."""

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import (
    bundle_option,
    called,
    called_in,
    counted,
    folder_argument,
    open_embedder,
    who_argument,
)
from familiar.cli.console import StatusLine, list_skipped, note, print_json
from familiar.cli.options import FILE, embedding_options, json_option
from familiar.core.terminal_text import printable

if TYPE_CHECKING:  # --help imports nothing heavy
    import numpy as np

    from familiar.embedding.embedder import Embedder
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.search.search import Filter, Hit, Match


@click.command()
@folder_argument
@click.argument("photos", nargs=-1, required=True, metavar="PHOTOS...", type=FILE)
@bundle_option
@click.option("--species", metavar="NAME", help="Write this species beside each new face.")
@click.option("--float32", is_flag=True, help="A new gallery keeps vectors whole, at twice the bytes.")
@embedding_options
@json_option
def enroll(
    folder: Path,
    photos: tuple[Path, ...],
    model: Path,
    species: str | None,
    float32: bool,
    tta: bool,
    detector: str,
    detector_model: Path | None,
    as_json: bool,
) -> None:
    """Photos into a gallery, which is made where there is none.

    Every face of every photo. What is there already is not looked at again, so the same call goes on where one was
    cut short, and follows photos that were moved or edited.

    \b
    Example:
      familiar gallery enroll album photos/ --model pet-nano --detector haar-cat
    """
    from familiar.detection.detectors import build_detector
    from familiar.gallery.enrollment.enroll import enroll as enroll_photos
    from familiar.photos.decoding import find_photos

    embedder, found, paths = (
        open_embedder(model),
        build_detector(detector, detector_model),
        find_photos(photos),
    )
    status = StatusLine()
    with _open_or_create(folder, embedder, float32) as gallery:
        enrolled = enroll_photos(
            gallery,
            embedder,
            paths,
            found,
            flip=tta,
            species=species,
            on_batch=lambda done, _: status.show(f"enrolled {done:,}/{len(paths):,} photos"),
        )
        status.clear()
        list_skipped(enrolled.skipped)
        _index(gallery)
    if as_json:
        print_json({"gallery": folder} | asdict(enrolled) | {"skipped": [str(e) for e in enrolled.skipped]})
        return
    click.echo(f"{folder}: {counted(enrolled.photos, 'new photo')} with {counted(enrolled.faces, 'face')}")
    for count, said in (
        (enrolled.without_face, "show no face"),
        (enrolled.known, "were known already"),
        (enrolled.moved, "of these have moved"),
        (enrolled.copies, "of these are copies"),
        (enrolled.edited, "have been edited"),
        (len(enrolled.skipped), "were skipped"),
    ):
        if count:
            click.echo(f"  {count:,} {said}")


@click.command()
@folder_argument
@click.argument("photo", metavar="PHOTO", type=FILE)
@bundle_option
@click.option("-k", "k", type=click.IntRange(min=1), default=10, show_default=True, help="So many at most.")
@click.option("--by", type=click.Choice(["photo", "identity"]), default="photo", show_default=True)
@click.option("--identity", "identities", multiple=True, metavar="WHO", help="Only faces of these.")
@click.option("--species", metavar="NAME", help="Only faces that were enrolled with this species.")
@click.option("--since", metavar="DATE", help="Only photos taken then or later: 2024, 2024-06, 2024-06-01T12:00:00.")
@click.option("--until", metavar="DATE", help="Only photos taken then or earlier.")
@click.option("--prefix", type=int, metavar="N", help="Find candidates by the first N numbers alone: faster.")
@embedding_options
@json_option
def search(
    folder: Path,
    photo: Path,
    model: Path,
    k: int,
    by: str,
    identities: tuple[str, ...],
    species: str | None,
    since: str | None,
    until: str | None,
    prefix: int | None,
    tta: bool,
    detector: str,
    detector_model: Path | None,
    as_json: bool,
) -> None:
    """Who is on a photo, and which photos are like it.

    Looks at the best face of PHOTO. Says first whom the gallery knows it as, or that it is nobody here; then the
    likest photos, or with --by identity the likest identities.

    \b
    Example:
      familiar gallery search album cat.jpg --model pet-nano -k 5
    """
    from familiar.gallery.clustering.assignments import resolve_identity
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.search.search import Filter, search_identities, search_photos

    if prefix is not None and by == "identity":
        raise click.UsageError("--prefix is for --by photo")
    with Gallery.open(folder) as gallery:
        embedder = open_embedder(model)
        if prefix is not None and prefix not in gallery.space.prefixes:
            valid = ", ".join(map(str, gallery.space.prefixes))
            raise click.BadParameter(f"the model's valid prefixes are {valid}", param_hint="--prefix")
        numbers = tuple(resolve_identity(gallery, who) for who in identities) or None
        try:
            only = Filter(numbers, species, since, until)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--since, --until") from error
        query = _query(gallery, embedder, photo, detector, detector_model, flip=tta)
        matches = search_identities(gallery, query, k, only=only)
        hits = search_photos(gallery, query, k, only=only, prefix=prefix) if by == "photo" else []
        some = bool(len(gallery.faces().ids))
    known = next((match for match in matches if match.known), None)
    if as_json:
        likest = {"photos": list(map(asdict, hits))} if by == "photo" else {"identities": list(map(asdict, matches))}
        print_json({"known": None if known is None else asdict(known)} | likest)
        return
    click.echo(_answer(folder, matches, only, some=some))
    for line in map(_photo_line, hits) if by == "photo" else map(_identity_line, matches):
        click.echo(line)


@click.command()
@folder_argument
@click.argument("photo", metavar="PHOTO", type=FILE)
@who_argument
@bundle_option
@embedding_options
@json_option
def verify(
    folder: Path,
    photo: Path,
    who: str,
    model: Path,
    tta: bool,
    detector: str,
    detector_model: Path | None,
    as_json: bool,
) -> None:
    """Does a photo show this identity?

    Compares the best face of PHOTO with the mean of the identity's faces.

    \b
    Example:
      familiar gallery verify album cat.jpg Tom --model pet-nano
    """
    from familiar.gallery.clustering.assignments import resolve_identity
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.search.search import verify as verify_identity

    with Gallery.open(folder) as gallery:
        number = resolve_identity(gallery, who)
        query = _query(gallery, open_embedder(model), photo, detector, detector_model, flip=tta)
        answer = verify_identity(gallery, query, number)
        name = called_in(gallery, number)
    if as_json:
        print_json({"identity": number} | asdict(answer))
        return
    click.echo(
        f"{photo}: {'shows' if answer.same else 'does not show'} {name} "
        f"({_closeness(answer.similarity, answer.probability)}, threshold {answer.threshold:.3f})"
    )


@click.command()
@folder_argument
@bundle_option
@click.option("--tta", is_flag=True, help="Average each face with its mirror image, at twice the cost.")
@json_option
def migrate(folder: Path, model: Path, tta: bool, as_json: bool) -> None:
    """Take a gallery over to another model.

    Every name, constraint and correction stays. Photos are embedded anew; where some are gone, their faces come
    over a bridge learned from the others. Until it is done the gallery is as it was; cut short, the same call goes on.

    \b
    Example:
      familiar gallery migrate album --model runs/better
    """
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.transfer.migrate import migrate as take_over

    with Gallery.open(folder) as gallery:
        embedder, status, total = open_embedder(model), StatusLine(), len(gallery.faces().ids)
        migrated = take_over(
            gallery,
            embedder,
            flip=tta,
            on_batch=lambda done: status.show(f"embedded {done:,}/{total:,} faces"),
        )
        status.clear()
        _index(gallery)
    if as_json:
        print_json({"gallery": folder, "space_id": embedder.metadata.space_id} | asdict(migrated))
        return
    click.echo(f"{folder}: holds embeddings of the space {embedder.metadata.space_id} now")
    for count, how in (
        (migrated.photos, "embedded anew, from their photos"),
        (migrated.prefix, "cut to the new length"),
        (migrated.bridge, f"over a bridge (cosine with the model's own: {migrated.bridge_cosine or 0:.3f})"),
    ):
        if count:
            click.echo(f"  {counted(count, 'face')} {how}")


def _open_or_create(folder: Path, embedder: "Embedder", float32: bool) -> "Gallery":
    from familiar.gallery.database.connection import DATABASE, Gallery, Space

    if (folder / DATABASE).exists():
        return Gallery.open(folder)
    made = Gallery.create(
        folder, Space.from_metadata(embedder.metadata), embedding_dtype="float32" if float32 else "float16"
    )
    note(f"{folder}: a new gallery, for embeddings of the space {embedder.metadata.space_id}")
    return made


def _index(gallery: "Gallery") -> None:
    """A large gallery's index, where it is not there or out of date."""
    from familiar.gallery.search import search

    if not search.lacks_index(gallery):
        return
    if find_spec("usearch") is None:
        note("every search looks at all faces; for faster ones: pip install 'familiar-faces[hnsw]', and enroll again")
        return
    status = StatusLine()
    status.show("building the index")
    search.build_index(gallery)
    status.clear()


def _query(
    gallery: "Gallery",
    embedder: "Embedder",
    photo: Path,
    detector: str,
    detector_model: Path | None,
    *,
    flip: bool,
) -> "np.ndarray":
    """The embedding of a photo's best face. SpaceMismatch where it does not compare with the gallery's."""
    from familiar.detection.detectors import build_detector
    from familiar.embedding.embedder import crop_photo

    gallery.check_space(embedder.metadata.space_id, embedder.metadata.embedding_dim)
    found = build_detector(detector, detector_model)
    return embedder.embed([crop_photo(photo, embedder.metadata.preprocessing, found)], flip=flip)[0]


def _answer(folder: Path, matches: "list[Match]", only: "Filter", *, some: bool) -> str:
    if not some:
        return f"nobody here: {folder} holds no face yet"
    if not matches:
        if not only.empty:
            return "nobody here: no identity passes what was asked for"
        return f"nobody here: no face is in a group yet; make some with: familiar gallery group {folder}"
    likest = matches[0]
    name, close = (
        called(likest.identity, likest.name),
        _closeness(max(likest.best, likest.mean), likest.probability),
    )
    return f"{name}: {close}" if likest.known else f"nobody here: the likest, {name}, is not like enough ({close})"


def _photo_line(hit: "Hit") -> str:
    close = _closeness(hit.similarity, hit.probability)
    return f"  {printable(hit.path)}  face {hit.face}, {called(hit.identity, hit.name)}: {close}"


def _identity_line(match: "Match") -> str:
    close = _closeness(max(match.best, match.mean), match.probability)
    return f"  {called(match.identity, match.name)}: {close}, best by face {match.face}"


def _closeness(similarity: float, probability: float | None) -> str:
    of = "" if probability is None else f", probability {probability:.1%}"
    return f"similarity {similarity:.3f}{of}"
