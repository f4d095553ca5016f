"""Embeddings laid out on a plane, so that the eye sees which identities lie apart."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int, Int64
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from sklearn.manifold import TSNE

from familiar.evaluation.plots.chart import TEXT_PT, Chart, Theme, chart

MOST_PHOTOS = 1000  # some seconds of t-SNE
MOST_OF_ONE = 30  # or one of hundreds of photos would fill the map
MOST_NAMED = 18  # identities told apart: six colors, three marks
FEWEST_FOR_TSNE = 50
_MARKS = "o^s"


def mapped_rows(labels: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " k"]:
    """Rows of whole identities, of each at most `MOST_OF_ONE`: those with the most photos, up to `MOST_PHOTOS`."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    photos = np.bincount(labels)
    place = np.arange(len(labels)) - np.repeat(np.cumsum(photos) - photos, photos)
    kept = order[place < MOST_OF_ONE]
    largest = np.argsort(-photos, kind="stable")
    shown = np.cumsum(np.minimum(photos[largest], MOST_OF_ONE)) <= MOST_PHOTOS
    return np.sort(kept[np.isin(labels[kept], largest[shown])])


def layout(embeddings: Float32[np.ndarray, "n d"], seed: int) -> Float64[np.ndarray, "n 2"]:
    """Places of unit rows: t-SNE (van der Maaten and Hinton 2008), or for few photos their principal components.

    t-SNE keeps neighbors together, which is what identities are about; distances between far groups mean nothing.
    The same rows and seed give the same places.
    """
    few = len(embeddings) < FEWEST_FOR_TSNE or embeddings.shape[1] < 2
    if few or np.ptp(embeddings, axis=0).max() == 0:
        return principal_components(embeddings)
    perplexity = min(30.0, (len(embeddings) - 1) / 4)
    model = TSNE(init="pca", perplexity=perplexity, random_state=seed)
    return np.asarray(model.fit_transform(embeddings), np.float64)


def principal_components(embeddings: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n 2"]:
    """The two directions of the greatest spread; zeros where there are fewer."""
    centered = embeddings.astype(np.float64) - embeddings.astype(np.float64).mean(axis=0)
    left, spread, _ = np.linalg.svd(centered, full_matrices=False)
    found = np.zeros((len(embeddings), 2))
    kept = min(2, len(spread))
    found[:, :kept] = left[:, :kept] * spread[:kept]
    return found


def named_identities(labels: Int[np.ndarray, " n"]) -> Int64[np.ndarray, " k"]:
    """The identities with the most photos, those that the map tells apart."""
    present, photos = np.unique(labels, return_counts=True)
    return present[np.argsort(-photos, kind="stable")[:MOST_NAMED]].astype(np.int64)


def map_chart(places: Float64[np.ndarray, "n 2"], labels: Int[np.ndarray, " n"], named: Sequence[int]) -> Chart:
    """A mark per photo; each of the `named` identities in its own color and mark, its number, from 1, in the midst."""

    def draw(axes: Axes, theme: Theme) -> None:
        others = ~np.isin(labels, list(named))
        axes.scatter(*places[others].T, s=10, color=theme.muted, alpha=0.45, linewidths=0)
        for place, label in enumerate(named):
            own = places[labels == label]
            color = theme.series[place % len(theme.series)]
            mark = _MARKS[place // len(theme.series) % len(_MARKS)]
            axes.scatter(*own.T, s=26, color=color, marker=mark, alpha=0.85, linewidths=0)
        for place, label in enumerate(named):
            middle = np.median(places[labels == label], axis=0)
            axes.annotate(
                str(place + 1),
                (float(middle[0]), float(middle[1])),
                ha="center",
                va="center",
                color=theme.ink,
                fontsize=TEXT_PT,
                fontweight="bold",
                path_effects=[withStroke(linewidth=3, foreground=theme.paper)],
            )
        axes.set_axis_off()

    return chart(draw, height_in=4.2, left_in=0.1, bottom_in=0.1)
