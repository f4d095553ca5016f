"""Photos on the page: thumbnails, each inlined, framed and signed."""

from dataclasses import dataclass

from familiar.evaluation.plots.photos import Tile, jpeg
from familiar.evaluation.report.examples import Examples, identity_name, photo_file
from familiar.metrics.mistakes import RankedPairs


@dataclass(frozen=True)
class PhotoTile:
    """A thumbnail.

    `identity` and `file`: names for display. `alt`: alternative text. `jpeg`: None if the photo can no longer be read.
    `correct`: whether a neighbor is of the query's identity, and `similarity` its similarity; None for other photos.
    """

    identity: str
    file: str
    alt: str
    jpeg: bytes | None
    width_px: int
    height_px: int
    correct: bool | None = None
    similarity: float | None = None


@dataclass(frozen=True)
class MistakeCard:
    """A pair that the model gets wrong. `probability`: None if the bundle was never calibrated."""

    similarity: float
    probability: float | None
    left: PhotoTile
    right: PhotoTile


def neighbor_rows(examples: Examples) -> list[tuple[PhotoTile, list[PhotoTile]]]:
    """Make the thumbnails of each query and of its nearest neighbors."""
    neighbors = examples.neighbors
    assert neighbors is not None
    rows: list[tuple[PhotoTile, list[PhotoTile]]] = []
    for index, query in enumerate(neighbors.queries.tolist()):
        tiles = [
            _tile(examples, row, "the same individual" if correct else "another individual", correct, similarity)
            for row, similarity, correct in zip(
                neighbors.rows[index].tolist(),
                neighbors.similarity[index].tolist(),
                neighbors.correct[index].tolist(),
                strict=True,
            )
        ]
        rows.append((_tile(examples, query, "query"), tiles))
    return rows


def mistake_cards(examples: Examples, pairs: RankedPairs, description: str) -> list[MistakeCard]:
    """Make a card per pair.

    Args:
        examples: the thumbnails.
        pairs: the mistakes.
        description: of each photo, in its alternative text.
    """
    return [
        MistakeCard(
            similarity,
            examples.calibration.probability(similarity),
            _tile(examples, left, description),
            _tile(examples, right, description),
        )
        for left, right, similarity in zip(
            pairs.left.tolist(), pairs.right.tolist(), pairs.similarity.tolist(), strict=True
        )
    ]


def neighbor_tiles(examples: Examples) -> list[list[Tile]]:
    """Return the tiles of the neighbor grid for a contact sheet."""
    neighbors = examples.neighbors
    assert neighbors is not None
    return [
        [
            Tile(examples.tiles[query], "query"),
            *(
                Tile(examples.tiles[row], f"{similarity:.2f}", correct)
                for row, similarity, correct in zip(
                    neighbors.rows[index].tolist(),
                    neighbors.similarity[index].tolist(),
                    neighbors.correct[index].tolist(),
                    strict=True,
                )
            ),
        ]
        for index, query in enumerate(neighbors.queries.tolist())
    ]


def mistake_tiles(examples: Examples, pairs: RankedPairs) -> list[list[Tile]]:
    """Return the tiles of mistakes for a contact sheet, two pairs in a row."""
    tiles = [
        Tile(examples.tiles[row], f"{similarity:.3f}")
        for left, right, similarity in zip(
            pairs.left.tolist(), pairs.right.tolist(), pairs.similarity.tolist(), strict=True
        )
        for row in (left, right)
    ]
    return [tiles[start : start + 4] for start in range(0, len(tiles), 4)]


def _tile(
    examples: Examples, row: int, description: str, correct: bool | None = None, similarity: float | None = None
) -> PhotoTile:
    pixels = examples.tiles[row]
    height_px, width_px = (0, 0) if pixels is None else pixels.shape[:2]
    identity, file = identity_name(examples.table, int(examples.table.labels[row])), photo_file(examples.table, row)
    return PhotoTile(
        identity,
        file,
        f"{identity}, {file}: {description}",
        None if pixels is None else jpeg(pixels),
        width_px,
        height_px,
        correct,
        similarity,
    )
