"""A gallery, and what it returns, as HTML for notebooks. Few photos are read, however large the gallery is."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from familiar.core.errors import FamiliarError
from familiar.core.gallery_types import Counts, GalleryFace, IdentitySummary, Question
from familiar.core.html import HtmlTable, image, missing_image, page_fragment, text, tile, tiles
from familiar.core.plural import pluralize
from familiar.core.recognition_types import Hit, Match
from familiar.gallery.clustering.album import load_album
from familiar.gallery.clustering.calibration import calibration, own_calibration
from familiar.gallery.search.listing import counts, identity_summaries
from familiar.gallery.store.store import Store
from familiar.photos.thumbnails import crop_face, encode_jpeg

IDENTITIES_SHOWN = 8
FACES_SHOWN = 3  # of an identity
ITEMS_SHOWN = 24
ITEM_FACES = 2  # of an identity or a question among other items
SIDE_PX = 64
ALBUM_FACES = 5_000  # of more, the clustering thresholds are not estimated just to display them
_QUALITY = 65

Described: TypeAlias = tuple[tuple[int, ...], tuple[str, ...]]
"""The faces of a tile, and the lines below it."""
Item: TypeAlias = Hit | Match | IdentitySummary | Question | GalleryFace | int


def gallery_text(gallery: Store) -> str:
    """Describe a gallery in a line. No face is loaded."""
    if not gallery.is_open:
        return f"{gallery.folder}, closed"
    try:
        with gallery.read() as repository:
            photos, faces = repository.photos.count(), repository.faces.count()
            identities = len(repository.identities.numbers())
    except FamiliarError as error:
        return f"{gallery.folder}, cannot be read: {error}"
    counted = pluralize(photos, "photo"), pluralize(faces, "face"), pluralize(identities, "identity")
    return f"{gallery.folder}, {', '.join(counted)}"


def gallery_html(gallery: Store) -> str:
    """Describe a gallery: its counts, model and thresholds, and its largest identities with some of their faces.

    Args:
        gallery: to describe. One that is closed or cannot be read is described as such.
    """
    heading = f"<p><b>Gallery {text(str(gallery.folder))}</b></p>"
    if not gallery.is_open:
        return page_fragment(heading, "<p>closed; <code>Gallery.open</code> opens it again</p>")
    try:
        with gallery.read():
            identities = identity_summaries(gallery, limit=IDENTITIES_SHOWN)
            numbers = counts(gallery)
            facts, hidden = _facts(gallery, numbers), numbers.named + numbers.unnamed - len(identities)
            content = _tiles(gallery, [(each.best[:FACES_SHOWN], _describe(each)[1]) for each in identities])
            thresholds = _thresholds(gallery, numbers)
    except Exception as error:  # a notebook would show a traceback in place of the value
        return page_fragment(heading, f"<p>cannot be shown: {text(str(error) or type(error).__name__)}</p>")
    more = f"<p>and {pluralize(hidden, 'identity')} more</p>" if hidden > 0 else ""
    return page_fragment(heading, facts, thresholds, content, more)


def items_html(gallery: Store, items: Iterable[Item]) -> str:
    """Show the faces of what a gallery returned.

    Args:
        gallery: it was returned by.
        items: search hits, matches, identities, questions, faces, or numbers of faces. The first 24 are shown.
    """
    listed = list(items)
    content = _tiles(gallery, [_describe(item) for item in listed[:ITEMS_SHOWN]])
    hidden = len(listed) - ITEMS_SHOWN
    return page_fragment(content if listed else "<p>none</p>", f"<p>and {hidden:,} more</p>" if hidden > 0 else "")


def _facts(gallery: Store, numbers: Counts) -> str:
    named = f"{numbers.named:,} with a name" if numbers.named or numbers.unnamed else "none clustered yet"
    table = HtmlTable()
    table.add("photos", f"{numbers.photos:,}")
    table.add("faces", f"{numbers.faces:,}, of which {numbers.unassigned:,} in no identity")
    table.add("identities", f"{numbers.named + numbers.unnamed:,}, {named}")
    for part in gallery.space.part_spaces:
        species = f" for {', '.join(part.species)}" if part.species else ""
        table.add(f"model{species}", f"{part.space_id}, {part.embedding_dim} components")
    table.add("embeddings", gallery.embedding_dtype.name)
    return table.html


def _thresholds(gallery: Store, numbers: Counts) -> str:
    """Return a table of the thresholds of each part of the space and, of smaller galleries, those of clustering."""
    table = HtmlTable(("threshold", "high precision", "balanced", "high recall", "from"), (1, 2, 3))
    for part, space in enumerate(gallery.space.part_spaces):
        current, fitted = calibration(gallery, part), own_calibration(gallery, part)
        source = "this gallery" if fitted is not None else "the model" if current.fitted else "a guess: not calibrated"
        values = (current.high_precision, current.balanced, current.high_recall)
        species = f" ({', '.join(space.species)})" if space.species else ""
        table.add(f"same individual{species}", *(_similarity(value.similarity) for value in values), source)
    if not 0 < numbers.faces <= ALBUM_FACES:
        return table.html
    clustering = [
        f"{'' if each.species is None else f'{each.species} '}{_similarity(each.threshold)}"
        for each in load_album(gallery).thresholds
    ]
    return f"{table.html}<p>clustered from a similarity of {text(', '.join(clustering))}</p>"


def _tiles(gallery: Store, described: Sequence[Described]) -> str:
    pictures = _pictures(gallery, [face for faces, _ in described for face in faces])
    return tiles(tile(map(pictures.__getitem__, faces), lines) for faces, lines in described)


def _pictures(gallery: Store, faces: Sequence[int]) -> dict[int, str]:
    """Return an image of each face, or what is shown in its place."""
    pictures = {face: missing_image("no face", f"the gallery has no face {face}") for face in faces}
    with gallery.read() as repository:
        rows = repository.faces.rows(pictures)
    for row in rows:
        if not row.size_bytes:
            pictures[row.face] = missing_image("no photo", f"{row.path}: enrolled as an embedding")
            continue
        try:
            pixels = crop_face(Path(row.path), row.sha256.hex(), row.box_xyxy_px, SIDE_PX)
        except FamiliarError as error:
            pictures[row.face] = missing_image("photo missing", str(error))
        else:
            pictures[row.face] = image(encode_jpeg(pixels, _QUALITY), f"face {row.face}: {row.path}")
    return pictures


def _describe(item: Item) -> Described:
    if isinstance(item, int):
        return (item,), (f"face {item}",)
    if isinstance(item, Question):
        lines = f"{item.kind}? {_probability(item.probability)}", f"similarity {_similarity(item.similarity)}"
        return (item.first_face, item.second_face), lines
    name = item.name or ("unassigned" if item.identity is None else f"#{item.identity}")
    if isinstance(item, IdentitySummary):
        confirmed = f", {item.confirmed:,} confirmed" if item.confirmed else ""
        return item.best[:ITEM_FACES], (name, f"{pluralize(item.faces, 'face')}{confirmed}")
    if isinstance(item, GalleryFace):
        return (item.face,), (name, f"face {item.face}{', confirmed' if item.by_user else ''}")
    similarity = item.best if isinstance(item, Match) else item.similarity
    likely = "" if item.probability is None else f", {_probability(item.probability)}"
    known = ("known" if item.known else "unknown",) if isinstance(item, Match) else ()
    return (item.face,), (name, f"similarity {_similarity(similarity)}{likely}", *known)


def _similarity(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def _probability(value: float) -> str:
    return f"{100 * value:.0f} %"
