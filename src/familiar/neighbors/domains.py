"""Kinds within one collection: whom an embedder takes for one individual, never having learned to tell them apart.

Embedders spread what they were trained on all over the sphere, and put all the rest into a few corners: all cats into
one, all gray portraits into another. There even strangers are alike, so grouping makes one group of a whole corner. But
such a group falls into groups again once what its members share is taken out (`adapt`), and the photos of one
individual do not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.blockwise import unit_rows
from familiar.neighbors.clustering import by_first_appearance, cluster, prepare_linkage
from familiar.neighbors.constraints import Constraints
from familiar.neighbors.whitening import whiten_to_domain

IN_DOMAIN = 0
# Chosen on a mixed album of cats, ORL and LFW with one embedder, and looked at on single individuals of 12 to 530
# photos (docs/clustering.md).
DOMAIN_THRESHOLD = 0.25
"""The similarity of adapted rows from which they are grouped."""
WIDER = 0.15
"""Kinds are looked for among groups that are made at so much less similarity: half a kind is harder to know."""
MIN_ROWS = 40
"""A smaller group is taken for an individual."""
SHARE = 0.4
"""Of a kind's rows so many come together again with two others or more."""
INDIVIDUALS = 8
"""They do so in this many groups at least: with fewer individuals `adapt` takes out what tells them apart."""
AGAIN = (0.30, 0.45)
"""The similarity of adapted rows from which they come together again: of up to 100 rows, and of very many."""
_RISE = 0.05  # with each doubling in between: of one individual's photos more are alike by chance


def is_domain(embeddings: Float32[np.ndarray, "n d"]) -> bool:
    """Whether rows that were grouped are many individuals, and not one.

    Two in five of them or more come together again, in eight groups of three or more, when they are grouped by adapted
    rows. `ValueError` for rows that are no unit vectors.
    """
    if len(embeddings) < MIN_ROWS:
        return False
    threshold = min(AGAIN[1], AGAIN[0] + _RISE * max(0.0, math.log2(len(embeddings) / 100)))
    sizes = np.bincount(cluster(whiten_to_domain(embeddings), threshold))
    again = sizes[sizes > 2]
    return bool(len(again) >= INDIVIDUALS and again.sum() >= SHARE * len(embeddings))


def whiten_by_domain(
    embeddings: Float32[np.ndarray, "n d"], kinds: Int64[np.ndarray, " n"]
) -> Float32[np.ndarray, "n d"]:
    """Rows to be grouped by: those of each kind adapted among themselves, those at home (0) as they are.

    Similarities of rows of different kinds mean nothing.
    """
    seen = embeddings.copy()
    for kind in np.unique(kinds[kinds != IN_DOMAIN]):
        seen[kinds == kind] = whiten_to_domain(embeddings[kinds == kind])
    return seen


@dataclass(frozen=True, eq=False)
class DomainCentroid:
    """Where a kind lies: the mean of its rows, and their least similarity with it."""

    domain: int
    centroid: Float64[np.ndarray, " d"]
    min_similarity: float


def domain_centroids(embeddings: Float32[np.ndarray, "n d"], kinds: Int64[np.ndarray, " n"]) -> list[DomainCentroid]:
    """Of every kind, by its number."""
    found: list[DomainCentroid] = []
    for kind in np.unique(kinds[kinds != IN_DOMAIN]).tolist():
        own = unit_rows(embeddings[kinds == kind])
        mean = own.mean(axis=0)
        found.append(DomainCentroid(kind, mean, float((own @ mean).min())))
    return found


def assign_domain(embeddings: Float32[np.ndarray, "n d"], kinds: Sequence[DomainCentroid]) -> Int64[np.ndarray, " n"]:
    """The kind that each row is of, lying as close to its middle as the furthest of its own; else 0, at home."""
    found = np.full(len(embeddings), IN_DOMAIN, np.int64)
    closest = np.full(len(embeddings), -2.0)
    rows = unit_rows(embeddings)
    for kind in kinds:
        to_middle = rows @ kind.centroid
        nearer = (to_middle >= kind.min_similarity) & (to_middle > closest)
        found[nearer] = kind.domain
        closest[nearer] = to_middle[nearer]
    return found


def extend_domains(embeddings: Float32[np.ndarray, "n d"], kinds: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """The kinds with rows at home that lie as close to the middle of a kind as the furthest of its own."""
    found, home = kinds.copy(), kinds == IN_DOMAIN
    found[home] = assign_domain(embeddings[home], domain_centroids(embeddings, kinds))
    return found


def cluster_by_domain(
    embeddings: Float32[np.ndarray, "n d"],
    threshold: float,
    kinds: Int64[np.ndarray, " n"] | None = None,
    seen: Float32[np.ndarray, "n d"] | None = None,
    constraints: Constraints | None = None,
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """The group and the kind of each row; groups as `neighbors.group` makes them, each of one kind.

    Rows at home are grouped from `threshold` on. Where they would be one group at .15 less, and that `is_domain`, they
    become a kind and are grouped again, adapted. `kinds`: those known already, from 1 on, 0 for all else (None: nothing
    is known), and `seen` their `views` among all the collection. Rows in a group with a seed are never taken for a
    kind.
    `ValueError` as in `group`.
    """
    kinds = np.zeros(len(embeddings), np.int64) if kinds is None else kinds
    seen = whiten_by_domain(embeddings, kinds) if seen is None else seen
    groups, wide = np.zeros((2, len(embeddings)), np.int64)
    for kind in np.unique(kinds):
        rows = np.flatnonzero(kinds == kind)
        at = [threshold, max(-1.0, threshold - WIDER)] if kind == IN_DOMAIN else [DOMAIN_THRESHOLD]
        found = prepare_linkage(seen[rows], constraints=_among(constraints, rows)).groups_at(at)
        groups[rows], wide[rows] = groups.max(initial=-1) + 1 + found[0], found[-1]
    new = _new_kinds(embeddings, groups, wide, kinds, constraints)
    changed = np.unique(new[new != kinds])
    seen = whiten_by_domain(embeddings, new) if len(changed) else seen
    for kind in changed:
        rows = np.flatnonzero(new == kind)
        found = cluster(seen[rows], DOMAIN_THRESHOLD, constraints=_among(constraints, rows))
        groups[rows] = groups.max(initial=-1) + 1 + found
    return by_first_appearance(groups), new


def _among(constraints: Constraints | None, rows: Int64[np.ndarray, " m"]) -> Constraints | None:
    """The constraints of some rows, by their places among these."""
    if constraints is None:
        return None
    place = np.full(len(constraints.seeds), -1)
    place[rows] = np.arange(len(rows))
    apart = place[constraints.cannot_link]
    return Constraints(constraints.seeds[rows], constraints.locked, apart[(apart >= 0).all(axis=1)])


def _new_kinds(
    embeddings: Float32[np.ndarray, "n d"],
    groups: Int64[np.ndarray, " n"],
    wide: Int64[np.ndarray, " n"],
    kinds: Int64[np.ndarray, " n"],
    constraints: Constraints | None,
) -> Int64[np.ndarray, " n"]:
    """The kinds with those among the wide groups at home that are one, and the rows beside them; but for rows in a
    group with a seed."""
    seeded = np.zeros(len(groups), np.bool_) if constraints is None else constraints.seeds >= 0
    free = (kinds == IN_DOMAIN) & ~np.isin(groups, groups[seeded])
    found = kinds.copy()
    numbers, sizes = np.unique(wide[free], return_counts=True)
    for number in numbers[sizes >= MIN_ROWS]:
        rows = np.flatnonzero(free & (wide == number))
        if is_domain(embeddings[rows]):
            found[rows] = found.max() + 1
    return np.where(free, extend_domains(embeddings, found), found)
