"""Photos on the page: responsive grids of thumbnails, each inlined, framed and signed."""

import base64
from html import escape

from familiar.evaluation.plots.photos import SIGNS, Tile, jpeg
from familiar.evaluation.report.examples import Examples, identity_name, photo_file
from familiar.evaluation.report.tables import name
from familiar.metrics.mistakes import RankedPairs


def neighbor_grid(examples: Examples) -> str:
    """Build a row per query: the photo, then its nearest neighbors."""
    neighbors = examples.neighbors
    if neighbors is None:
        return ""
    rows: list[str] = []
    for index, query in enumerate(neighbors.queries.tolist()):
        tiles = [_tile(examples, query, f"<b>{_identity(examples, query)}</b>", "query", None)]
        for row, similarity, correct in zip(
            neighbors.rows[index].tolist(),
            neighbors.similarity[index].tolist(),
            neighbors.correct[index].tolist(),
            strict=True,
        ):
            description = "the same individual" if correct else "another individual"
            caption = f"<b>{SIGNS[correct]} {similarity:.2f}</b> {_identity(examples, row)}"
            tiles.append(_tile(examples, row, caption, description, correct))
        rows.append(f'<div class="row">{"".join(tiles)}</div>')
    return "".join(rows)


def mistake_cards(examples: Examples, pairs: RankedPairs, description: str) -> str:
    """Build a card per pair: similarity, probability, and both photos with their names.

    Args:
        examples: the thumbnails.
        pairs: the mistakes.
        description: of each photo, in its alternative text.
    """
    cards: list[str] = []
    for left, right, similarity in zip(
        pairs.left.tolist(), pairs.right.tolist(), pairs.similarity.tolist(), strict=True
    ):
        facts = f"similarity <strong>{similarity:.3f}</strong>".replace("-", "−")
        if examples.probability is not None:
            facts += f", probability {examples.probability.probability(similarity):.3f}"
        tiles = "".join(
            _tile(
                examples,
                row,
                f"<b>{_identity(examples, row)}</b><small>{name(photo_file(examples.table, row))}</small>",
                description,
                None,
            )
            for row in (left, right)
        )
        cards.append(f'<li><p>{facts}</p><div class="pair">{tiles}</div></li>')
    return f'<ol class="mistakes">{"".join(cards)}</ol>'


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


def _identity(examples: Examples, row: int) -> str:
    return name(identity_name(examples.table, int(examples.table.labels[row])))


def _tile(examples: Examples, row: int, caption: str, description: str, correct: bool | None) -> str:
    pixels = examples.tiles[row]
    identity = identity_name(examples.table, int(examples.table.labels[row]))
    alt = escape(f"{identity}, {photo_file(examples.table, row)}: {description}")
    modifier = "" if correct is None else " correct" if correct else " wrong"
    if pixels is None:
        picture = f'<div class="unreadable" role="img" aria-label="{alt}">can no longer be read</div>'
    else:
        source = base64.b64encode(jpeg(pixels)).decode()
        height, width = pixels.shape[:2]
        picture = f'<img src="data:image/jpeg;base64,{source}" width="{width}" height="{height}" alt="{alt}">'
    return f'<figure class="tile{modifier}">{picture}<figcaption>{caption}</figcaption></figure>'
