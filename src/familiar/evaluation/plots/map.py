"""Map of the embeddings: a 2-D projection that shows which identities are separated."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int, Int64
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from sklearn.manifold import TSNE

from familiar.evaluation.plots.chart import TEXT_PT, Chart, Theme, chart

MAX_PHOTOS = 1000  # t-SNE takes some seconds
MAX_PHOTOS_PER_IDENTITY = 30  # an identity of hundreds of photos would fill the map
MAX_LABELED_IDENTITIES = 18  # six colors times three markers
MIN_PHOTOS_FOR_TSNE = 50
_MARKERS = "o^s"


def sample_rows(labels: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " k"]:
    """Select rows of the identities with the most photos, up to `MAX_PHOTOS`.

    Of each identity at most `MAX_PHOTOS_PER_IDENTITY` photos are drawn by `seed`.
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    photos = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(photos) - photos, photos)  # within the identity
    limited = order[rank < MAX_PHOTOS_PER_IDENTITY]
    largest = np.argsort(-photos, kind="stable")
    shown = np.cumsum(np.minimum(photos[largest], MAX_PHOTOS_PER_IDENTITY)) <= MAX_PHOTOS
    return np.sort(limited[np.isin(labels[limited], largest[shown])])


def layout(embeddings: Float32[np.ndarray, "n d"], seed: int) -> Float64[np.ndarray, "n 2"]:
    """Project unit rows to the plane by t-SNE (van der Maaten and Hinton 2008), few photos by PCA.

    t-SNE keeps neighbors together, which matters for identities; distances between far clusters mean nothing. The
    same rows and seed give the same positions.
    """
    few = len(embeddings) < MIN_PHOTOS_FOR_TSNE or embeddings.shape[1] < 2
    if few or np.ptp(embeddings, axis=0).max() == 0:
        return principal_components(embeddings)
    perplexity = min(30.0, (len(embeddings) - 1) / 4)
    model = TSNE(init="pca", perplexity=perplexity, random_state=seed)
    return np.asarray(model.fit_transform(embeddings), np.float64)


def principal_components(embeddings: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n 2"]:
    """Project rows to their first two principal components; zeros for components that do not exist."""
    centered = embeddings.astype(np.float64) - embeddings.astype(np.float64).mean(axis=0)
    u, singular_values, _ = np.linalg.svd(centered, full_matrices=False)
    positions = np.zeros((len(embeddings), 2))
    components = min(2, len(singular_values))
    positions[:, :components] = u[:, :components] * singular_values[:components]
    return positions


def labeled_identities(labels: Int[np.ndarray, " n"]) -> Int64[np.ndarray, " k"]:
    """Select the identities with the most photos, which the map shows in colors of their own."""
    present, photos = np.unique(labels, return_counts=True)
    return present[np.argsort(-photos, kind="stable")[:MAX_LABELED_IDENTITIES]].astype(np.int64)


def map_chart(positions: Float64[np.ndarray, "n 2"], labels: Int[np.ndarray, " n"], labeled: Sequence[int]) -> Chart:
    """Draw a marker per photo.

    Each of the `labeled` identities has its own color and marker, and its number, from 1, at its median position.
    """

    def draw(axes: Axes, theme: Theme) -> None:
        others = ~np.isin(labels, list(labeled))
        axes.scatter(*positions[others].T, s=10, color=theme.muted, alpha=0.45, linewidths=0)
        for index, label in enumerate(labeled):
            color = theme.series[index % len(theme.series)]
            marker = _MARKERS[index // len(theme.series) % len(_MARKERS)]
            axes.scatter(*positions[labels == label].T, s=26, color=color, marker=marker, alpha=0.85, linewidths=0)
        for index, label in enumerate(labeled):
            center = np.median(positions[labels == label], axis=0)
            axes.annotate(
                str(index + 1),
                (float(center[0]), float(center[1])),
                ha="center",
                va="center",
                color=theme.ink,
                fontsize=TEXT_PT,
                fontweight="bold",
                path_effects=[withStroke(linewidth=3, foreground=theme.paper)],
            )
        axes.set_axis_off()

    return chart(draw, height_in=4.2, left_in=0.1, bottom_in=0.1)
