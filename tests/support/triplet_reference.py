"""Slow and obvious triplets: all (a, p, n) of a batch, one after another, by squared Euclidean distance."""

import itertools
import math

import torch
from hypothesis import strategies as st
from torch.nn.functional import normalize, relu, softplus

# Unit vectors whose squared distances are 0, 1, 2, 3 and 4, without rounding: halves, and the axes.
GRID = (*itertools.product((-0.5, 0.5), repeat=4), *sorted({*itertools.permutations((1.0, 0.0, 0.0, 0.0))}))
GRID_MARGINS = (0.0, 0.5, 1.0, 2.0)  # most of them are met exactly by a difference of two distances


def distance_table(embeddings):
    rows = embeddings.tolist()
    return [[math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for b in rows] for a in rows]


def valid_triplets(labels):
    """List all (anchor, positive, negative) in lexicographic order."""
    names = labels.tolist()
    return [
        (a, p, n)
        for a, p, n in itertools.product(range(len(names)), repeat=3)
        if a != p and names[a] == names[p] and names[a] != names[n]
    ]


def semi_hard_triplets(embeddings, labels, margin):
    d = distance_table(embeddings)
    return [(a, p, n) for a, p, n in valid_triplets(labels) if d[a][p] < d[a][n] < d[a][p] + margin]


def nearest_of_each_pair(embeddings, triplets):
    """Select for each anchor and positive the triplet with the nearest negative."""
    d = distance_table(embeddings)
    pairs = itertools.groupby(triplets, key=lambda triplet: triplet[:2])
    return [min(group, key=lambda triplet: d[triplet[0]][triplet[2]]) for _, group in pairs]


def hardest_of_each_anchor(embeddings, labels):
    d = distance_table(embeddings)
    anchors = itertools.groupby(valid_triplets(labels), key=lambda triplet: triplet[0])
    return [max(group, key=lambda t: d[t[0]][t[1]] - d[t[0]][t[2]]) for _, group in anchors]


def chosen_triplets(way, embeddings, labels, margin):
    """List the triplets that each mining strategy is defined to select, if no two distances are equal."""
    if way == "batch_all":
        return valid_triplets(labels)
    if way == "semi_hard":
        return semi_hard_triplets(embeddings, labels, margin)
    if way == "semi_hard_hardest":
        return nearest_of_each_pair(embeddings, semi_hard_triplets(embeddings, labels, margin))
    if way == "hard_negative":
        return nearest_of_each_pair(embeddings, valid_triplets(labels))
    assert way in ("batch_hard", "batch_hard_soft")
    return hardest_of_each_anchor(embeddings, labels)


def loss_of_triplets(embeddings, triplets, margin, reduction, soft_margin=False):
    """Compute the mean cost one triplet after another; differentiable."""
    costs = []
    for a, p, n in triplets:
        to_positive = (embeddings[a] - embeddings[p]).square().sum()
        to_negative = (embeddings[a] - embeddings[n]).square().sum()
        gap = to_positive - to_negative
        cost = softplus(gap) if soft_margin else relu(gap + margin)
        if reduction == "all" or cost > 0:
            costs.append(cost)
    return torch.stack(costs).mean() if costs else 0.0 * embeddings.sum()


def slow_loss(way, embeddings, labels, margin, reduction):
    triplets = chosen_triplets(way, embeddings.detach(), labels, margin)
    return loss_of_triplets(embeddings, triplets, margin, reduction, way == "batch_hard_soft")


def value_and_gradient(loss, embeddings, *others):
    """Compute the loss and its gradient with respect to `embeddings`."""
    leaf = embeddings.detach().clone().requires_grad_()
    value = loss(leaf, *others)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def assert_same(ours, expected, tolerance=1e-10):
    """Compare two (value, gradient)."""
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


def unit_rows(n, dim=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64)).to(dtype)


def as_labels(names):
    return torch.tensor(names, dtype=torch.int64)


# Uneven identities, singletons, one identity, all distinct, one row and no row at all.
names = st.lists(st.integers(-3, 2), max_size=9)


@st.composite
def grid_batches(draw):
    """Draw rows with many equal distances, or distances that differ by exactly the margin."""
    labels = draw(names)
    rows = draw(st.lists(st.sampled_from(GRID), min_size=len(labels), max_size=len(labels)))
    embeddings = torch.tensor(rows, dtype=torch.float64).reshape(len(labels), 4)
    return embeddings, as_labels(labels), draw(st.sampled_from(GRID_MARGINS))


@st.composite
def sphere_batches(draw, unit=True):
    """Draw rows, on the unit sphere or not, with no two equal distances."""
    labels = draw(names)
    embeddings = unit_rows(len(labels), draw(st.integers(2, 5)), draw(st.integers(0, 9999)))
    if not unit:
        embeddings = embeddings * torch.linspace(0.3, 2.0, len(labels), dtype=torch.float64)[:, None]
    return embeddings, as_labels(labels), draw(st.sampled_from([0.0, 0.2, 1.0, 3.0]))
