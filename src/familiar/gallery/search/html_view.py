"""A gallery, and what it returns, as HTML for notebooks. Few photos are read, however large the gallery is."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from familiar.core.errors import FamiliarError
from familiar.core.gallery_types import Counts, GalleryFace, IdentitySummary, Question
from familiar.core.notebook import NotebookImage, NotebookTile, notebook_html
from familiar.core.plural import pluralize
from familiar.core.recognition_types import Hit, Match
from familiar.gallery.same.album import load_album
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
_TEMPLATES = Path(__file__).parent / "templates"

Described: TypeAlias = tuple[tuple[int, ...], tuple[str, ...]]
"""The faces of a tile, and the lines below it."""
Item: TypeAlias = Hit | Match | IdentitySummary | Question | GalleryFace | int


def gallery_text(store: Store) -> str:
    """Describe a gallery in a line. No face is loaded."""
    if not store.is_open:
        return f"{store.folder}, closed"
    try:
        with store.read() as repository:
            photos, faces = repository.photos.count(), repository.faces.count()
            identities = len(repository.identities.numbers())
    except FamiliarError as error:
        return f"{store.folder}, cannot be read: {error}"
    counted = pluralize(photos, "photo"), pluralize(faces, "face"), pluralize(identities, "identity")
    return f"{store.folder}, {', '.join(counted)}"


def gallery_html(store: Store) -> str:
    """Describe a gallery: its counts, model and thresholds, and its largest identities with some of their faces.

    Args:
        store: to describe. One that is closed or cannot be read is described as such.
    """
    values: dict[str, Any] = {"folder": str(store.folder), "is_open": store.is_open, "error": None}
    if store.is_open:
        try:
            with store.read():
                values |= _gallery_values(store)
        except Exception as error:  # a notebook would show a traceback in place of the value
            values["error"] = str(error) or type(error).__name__
    return notebook_html(_TEMPLATES, "gallery.html", **values)


def items_html(store: Store, items: Iterable[Item]) -> str:
    """Show the faces of what a gallery returned.

    Args:
        store: it was returned by.
        items: search hits, matches, identities, questions, faces, or numbers of faces. The first 24 are shown.
    """
    listed = list(items)
    tiles = _tiles(store, [_describe(item) for item in listed[:ITEMS_SHOWN]])
    return notebook_html(_TEMPLATES, "items.html", tiles=tiles, hidden=len(listed) - ITEMS_SHOWN)


def _gallery_values(store: Store) -> dict[str, Any]:
    identities = identity_summaries(store, limit=IDENTITIES_SHOWN)
    numbers = counts(store)
    return {
        "facts": _facts(store, numbers),
        "thresholds": _thresholds(store),
        "clustering": _clustering(store) if 0 < numbers.faces <= ALBUM_FACES else [],
        "tiles": _tiles(store, [(each.best[:FACES_SHOWN], _describe(each)[1]) for each in identities]),
        "hidden": numbers.named + numbers.unnamed - len(identities),
    }


def _facts(store: Store, numbers: Counts) -> list[tuple[str, str]]:
    named = f"{numbers.named:,} with a name" if numbers.named or numbers.unnamed else "none clustered yet"
    models: list[tuple[str, str]] = []
    for part in store.space.part_spaces:
        species = f" for {', '.join(part.species)}" if part.species else ""
        models.append((f"model{species}", f"{part.space_id}, {part.embedding_dim} components"))
    return [
        ("photos", f"{numbers.photos:,}"),
        ("faces", f"{numbers.faces:,}, of which {numbers.unassigned:,} in no identity"),
        ("identities", f"{numbers.named + numbers.unnamed:,}, {named}"),
        *models,
        ("embeddings", store.embedding_dtype),
    ]


def _thresholds(store: Store) -> list[tuple[str, ...]]:
    """Return a row of the thresholds of each part of the space."""
    rows: list[tuple[str, ...]] = []
    for space in store.space.part_spaces:
        current = space.gallery_calibration
        source = "the model" if current.fitted else "a guess: not calibrated"
        values = (current.high_precision, current.balanced, current.high_recall)
        species = f" ({', '.join(space.species)})" if space.species else ""
        rows.append((f"same individual{species}", *(_similarity(value.similarity) for value in values), source))
    return rows


def _clustering(store: Store) -> list[str]:
    """Return the clustering threshold of each species."""
    album = load_album(store)
    return [
        f"{'' if name is None else f'{name} '}{_similarity(comparison.threshold)}"
        for name, comparison in zip(album.names, album.comparisons, strict=True)
    ]


def _tiles(store: Store, described: Sequence[Described]) -> list[NotebookTile]:
    pictures = _pictures(store, [face for faces, _ in described for face in faces])
    return [NotebookTile(tuple(pictures[face] for face in faces), lines) for faces, lines in described]


def _pictures(store: Store, faces: Sequence[int]) -> dict[int, NotebookImage]:
    """Return an image of each face, or what is shown in its place."""
    pictures = {face: NotebookImage(f"the gallery has no face {face}", label="no face") for face in faces}
    with store.read() as repository:
        rows = repository.faces.rows(pictures)
    for row in rows:
        if not row.size_bytes:
            pictures[row.face] = NotebookImage(f"{row.path}: enrolled as an embedding", label="no photo")
            continue
        try:
            pixels = crop_face(Path(row.path), row.sha256.hex(), row.box_xyxy_px, SIDE_PX)
        except FamiliarError as error:
            pictures[row.face] = NotebookImage(str(error), label="photo missing")
        else:
            pictures[row.face] = NotebookImage(f"face {row.face}: {row.path}", encode_jpeg(pixels, _QUALITY))
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
