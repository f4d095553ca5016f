"""Photos on the page: grids that reflow, each photo inlined, framed and signed."""

import base64
from html import escape

from familiar.evaluation.plots.photos import SIGNS, Tile, jpeg
from familiar.evaluation.report.examples import Evidence, identity_name, photo_file
from familiar.evaluation.report.tables import name
from familiar.metrics.mistakes import RankedPairs


def neighbor_grid(evidence: Evidence) -> str:
    """A row per query: the photo, then its nearest others."""
    found = evidence.neighbors
    if found is None:
        return ""
    rows: list[str] = []
    for place, query in enumerate(found.queries.tolist()):
        tiles = [_tile(evidence, query, f"<b>{_identity(evidence, query)}</b>", "searched for", None)]
        for near, similarity, right in zip(
            found.found[place].tolist(),
            found.similarity[place].tolist(),
            found.right[place].tolist(),
            strict=True,
        ):
            judged = "the same individual" if right else "a stranger"
            caption = f"<b>{SIGNS[right]} {similarity:.2f}</b> {_identity(evidence, near)}"
            tiles.append(_tile(evidence, near, caption, judged, right))
        rows.append(f'<div class="row">{"".join(tiles)}</div>')
    return "".join(rows)


def mistake_cards(evidence: Evidence, pairs: RankedPairs, said: str) -> str:
    """A card per pair: how similar, how probable, and both photos with their names."""
    cards: list[str] = []
    for left, right, similarity in zip(
        pairs.left.tolist(), pairs.right.tolist(), pairs.similarity.tolist(), strict=True
    ):
        facts = f"<strong>{similarity:.3f}</strong> similar".replace("-", "−")
        if evidence.probability is not None:
            facts += f", probability {evidence.probability.probability(similarity):.3f}"
        tiles = "".join(
            _tile(
                evidence,
                row,
                f"<b>{_identity(evidence, row)}</b><small>{name(photo_file(evidence.table, row))}</small>",
                said,
                None,
            )
            for row in (left, right)
        )
        cards.append(f'<li><p>{facts}</p><div class="two">{tiles}</div></li>')
    return f'<ol class="mistakes">{"".join(cards)}</ol>'


def neighbor_sheet(evidence: Evidence) -> list[list[Tile]]:
    """The grid for a picture of its own."""
    found = evidence.neighbors
    assert found is not None
    return [
        [
            Tile(evidence.tiles[query], "query"),
            *(
                Tile(evidence.tiles[near], f"{similarity:.2f}", right)
                for near, similarity, right in zip(
                    found.found[place].tolist(),
                    found.similarity[place].tolist(),
                    found.right[place].tolist(),
                    strict=True,
                )
            ),
        ]
        for place, query in enumerate(found.queries.tolist())
    ]


def mistake_sheet(evidence: Evidence, pairs: RankedPairs) -> list[list[Tile]]:
    """Two pairs a row, for a picture of its own."""
    tiles = [
        Tile(evidence.tiles[row], f"{similarity:.3f}")
        for left, right, similarity in zip(
            pairs.left.tolist(), pairs.right.tolist(), pairs.similarity.tolist(), strict=True
        )
        for row in (left, right)
    ]
    return [tiles[start : start + 4] for start in range(0, len(tiles), 4)]


def _identity(evidence: Evidence, row: int) -> str:
    return name(identity_name(evidence.table, int(evidence.table.labels[row])))


def _tile(evidence: Evidence, row: int, caption: str, judged: str, right: bool | None) -> str:
    pixels = evidence.tiles[row]
    identity = identity_name(evidence.table, int(evidence.table.labels[row]))
    alt = escape(f"{identity}, {photo_file(evidence.table, row)}: {judged}")
    kind = "" if right is None else " right" if right else " wrong"
    if pixels is None:
        picture = f'<div class="gone" role="img" aria-label="{alt}">cannot be read any more</div>'
    else:
        source = base64.b64encode(jpeg(pixels)).decode()
        height, width = pixels.shape[:2]
        picture = f'<img src="data:image/jpeg;base64,{source}" width="{width}" height="{height}" alt="{alt}">'
    return f'<figure class="tile{kind}">{picture}<figcaption>{caption}</figcaption></figure>'
