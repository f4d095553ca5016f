"""Fit a species head to one bundle's embeddings, and say how well it does on identities it never saw. No torch."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.errors import BadDataset, FamiliarError
from familiar.core.vectors import check_unit_rows
from familiar.datasets.folders import IdentityTable, by_hash, open_photo
from familiar.detection.detectors import Detector
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.embedding.species.classifier import (
    MIN_PROBABILITY,
    HeldOutAccuracy,
    SpeciesClassifier,
    check_names,
    softmax,
)

PENALTY = 1e-4  # between 1e-3 and 1e-5 held-out photos of cats, dogs and people are told apart best
FOLDS = 5
_NEWTON_STEPS = 100
_LOG_SHARPNESS = (-7.0, 7.0)  # temperatures from a thousandth to a thousand


def fit_on_photos(
    features: Embedder,
    tables: Mapping[str, IdentityTable],
    detector: Detector | None = None,
    *,
    flip: bool = False,
    min_probability: float = MIN_PROBABILITY,
    on_batch: Callable[[int], None] = lambda _: None,
) -> tuple[SpeciesClassifier, tuple[FamiliarError, ...]]:
    """A head for the species that `tables` show, and the photos that were skipped. BadDataset as `fit_species_head`.

    `on_batch` is told how many photos are embedded.
    """
    check_names(tuple(tables))
    embeddings: list[np.ndarray] = []
    species: list[str] = []
    identities: list[str] = []
    skipped: list[FamiliarError] = []
    before = 0
    for name, table in tables.items():
        embedded = embed_photos(
            features,
            table.photos,
            detector,
            open_photo=open_photo,
            flip=flip,
            on_batch=lambda done, before=before: on_batch(before + done),
        )
        before += len(table)
        embeddings.append(embedded.embeddings)
        species += [name] * len(embedded.rows)
        identities += [f"{name}/{table.names[table.labels[row]]}" for row in embedded.rows]
        skipped += embedded.skipped
    head = fit_species_head(
        np.concatenate(embeddings),
        species,
        identities,
        names=tuple(tables),
        space_id=features.metadata.space_id,
        min_probability=min_probability,
    )
    return head, tuple(skipped)


def fit_species_head(
    embeddings: Float32[np.ndarray, "n d"],
    species: Sequence[str],
    identities: Sequence[str],
    *,
    names: tuple[str, ...],
    space_id: str,
    min_probability: float = MIN_PROBABILITY,
    penalty: float = PENALTY,
    folds: int = FOLDS,
) -> SpeciesClassifier:
    """The head of softmax regression on unit rows of the space `space_id`, its species `names` weighing the same.

    First identities are dealt into `folds`, two or more, and each fold is judged by a regression on the others. On
    these held-out rows the temperature is fitted, and `held_out` is measured. Then the head itself is fitted on all.

    BadDataset where a species has fewer than two identities. ValueError where an identity is of two species, a row is
    no unit vector, or `species` and `names` do not agree.
    """
    check_names(names)
    check_unit_rows(embeddings)
    x = embeddings.astype(np.float64)
    place = {name: index for index, name in enumerate(names)}
    if unknown := sorted(set(species) - place.keys()):
        raise ValueError(f"a row is of species {unknown[0]!r}, which is none of {', '.join(names)}")
    labels = np.array([place[name] for name in species], np.int64)
    fold_of = _deal(names, species, identities, folds)
    logits = np.empty((len(x), len(names)))
    for fold in np.unique(fold_of):
        out = fold_of == fold
        weights, bias = softmax_regression(x[~out], labels[~out], len(names), penalty)
        logits[out] = x[out] @ weights.T + bias
    temperature = fit_temperature(logits, labels)
    weights, bias = softmax_regression(x, labels, len(names), penalty)
    return SpeciesClassifier(
        names=names,
        weights=weights,
        bias=bias,
        temperature=temperature,
        space_id=space_id,
        fitted_on={
            name: {
                "identities": len({who for who, own in zip(identities, species, strict=True) if own == name}),
                "photos": species.count(name),
            }
            for name in names
        },
        held_out=measure(softmax(logits / temperature), labels, min_probability),
        min_probability=min_probability,
    )


def softmax_regression(
    x: Float64[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"], classes: int, penalty: float = PENALTY
) -> tuple[Float64[np.ndarray, "k d"], Float64[np.ndarray, " k"]]:
    """(weights, bias) of least `mean cross-entropy + penalty / 2 * |weights|^2`, every class weighing the same.

    Convex: Newton's method with halved steps arrives. Each class needs a row.
    """
    design = np.hstack([x, np.ones((len(x), 1))])
    width = design.shape[1]
    share = _equal_class_weights(labels, classes)
    targets = np.eye(classes)[labels]
    ridge = np.append(np.full(width - 1, penalty), 0.0)

    def loss(at: Float64[np.ndarray, "k w"]) -> float:
        logits = design @ at.T
        largest = logits.max(axis=1)
        entropy = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)) - (targets * logits).sum(axis=1)
        return float(share @ entropy + 0.5 * (ridge * at**2).sum())

    found = np.zeros((classes, width))
    for _ in range(_NEWTON_STEPS):
        chance = softmax(design @ found.T)
        gradient = (share[:, None] * (chance - targets)).T @ design + ridge * found
        hessian = np.empty((classes, width, classes, width))
        for i, j in combinations_with_replacement(range(classes), 2):
            curvature = share * chance[:, i] * ((i == j) - chance[:, j])
            hessian[i, :, j] = hessian[j, :, i] = (design * curvature[:, None]).T @ design
            hessian[i, :, j] += (i == j) * np.diag(ridge)
        hessian[:, -1, :, -1] += 1.0  # softmax does not change when all biases grow alike; they stay at sum 0
        size = classes * width
        step = np.linalg.solve(hessian.reshape(size, size), gradient.ravel()).reshape(classes, width)
        while loss(found - step) > loss(found) + 1e-12:
            step = step / 2
        found = found - step
        if np.abs(step).max() < 1e-9 * max(1.0, np.abs(found).max()):
            break
    return found[:, :-1], found[:, -1]


def fit_temperature(logits: Float64[np.ndarray, "n k"], labels: Int64[np.ndarray, " n"]) -> float:
    """What to divide held-out logits by, so that their softmax is as often right as it says (Guo et al. 2017).

    Least cross-entropy, every class weighing the same, with Platt's targets for k classes: (n + 1) / (n + k) for the
    right one of a class with n rows, 1 / (n + k) for the others. So it is above zero where no row is wrong.
    """
    classes = logits.shape[1]
    counts = np.bincount(labels, minlength=classes)[labels][:, None]
    targets = (np.eye(classes)[labels] * counts + 1) / (counts + classes)
    share = _equal_class_weights(labels, classes)

    def slope(sharpness: float) -> float:
        """Of the cross-entropy, as a function of 1 / temperature; it rises, for that function is convex."""
        return float(share @ ((softmax(logits * sharpness) - targets) * logits).sum(axis=1))

    low, high = _LOG_SHARPNESS
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(np.exp(middle)) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def measure(
    probabilities: Float64[np.ndarray, "n k"], labels: Int64[np.ndarray, " n"], min_probability: float
) -> HeldOutAccuracy:
    """How often the likeliest species is right, and which were sent where at `min_probability`."""
    classes = probabilities.shape[1]
    likeliest = probabilities.argmax(axis=1)
    sent = np.where(probabilities.max(axis=1) >= min_probability, likeliest, classes)
    confusion = np.zeros((classes, classes + 1), np.int64)
    np.add.at(confusion, (labels, sent), 1)
    accuracy = float(np.mean([(likeliest[labels == own] == own).mean() for own in range(classes)]))
    return HeldOutAccuracy(accuracy, tuple(tuple(row) for row in confusion.tolist()))


def _deal(
    names: tuple[str, ...], species: Sequence[str], identities: Sequence[str], folds: int
) -> Int64[np.ndarray, " n"]:
    """The fold of each row: each species' identities dealt out one by one, so that no fold has all of a species."""
    species_of: dict[str, str] = {}
    for identity, name in zip(identities, species, strict=True):
        if species_of.setdefault(identity, name) != name:
            raise ValueError(f"the identity {identity!r} is of two species: {species_of[identity]} and {name}")
    fold_of: dict[str, int] = {}
    dealt = {name: by_hash(i for i, own in species_of.items() if own == name) for name in names}
    for name, own in dealt.items():
        if len(own) < 2:
            raise BadDataset(
                f"{name}: has photos of {len(own)} identities; two at least are needed, so that one can be held out"
            )
        fold_of |= {identity: place % folds for place, identity in enumerate(own)}
    return np.array([fold_of[identity] for identity in identities], np.int64)


def _equal_class_weights(labels: Int64[np.ndarray, " n"], classes: int) -> Float64[np.ndarray, " n"]:
    """Of each row; those of one class sum to 1 / k."""
    return 1.0 / (classes * np.bincount(labels, minlength=classes)[labels])
