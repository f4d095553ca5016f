"""Fit a species classifier to one bundle's embeddings and measure it on held-out identities. No torch."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.errors import BadDataset, FamiliarError
from familiar.core.vectors import check_unit_rows
from familiar.datasets.folders import IdentityTable, open_photo, sort_by_hash
from familiar.detection.detector import Detector
from familiar.embedding.embedder import Embedder
from familiar.embedding.model import embed_photos
from familiar.embedding.species.classifier import (
    MIN_PROBABILITY,
    HeldOutAccuracy,
    SpeciesClassifier,
    check_species_names,
    softmax,
)

L2_PENALTY = 1e-4  # held-out photos of cats, dogs and people are separated best between 1e-3 and 1e-5
FOLDS = 5
_MAX_NEWTON_STEPS = 100
_BISECTION_STEPS = 60
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
    """Embed photos and fit a classifier for their species.

    Args:
        features: computes the embeddings.
        tables: the photos of each species, by its name.
        detector: finds the faces; without it, photos are taken as crops.
        flip: whether to average each embedding with that of the mirror image.
        min_probability: below it, the classifier leaves a photo undecided; in [0, 1].
        on_batch: called with the number of photos embedded so far.

    Returns:
        The classifier, and an error for each photo that was skipped.

    Raises:
        BadDataset: a species has fewer than two identities.
    """
    check_species_names(tuple(tables))
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
    penalty: float = L2_PENALTY,
    folds: int = FOLDS,
) -> SpeciesClassifier:
    """Fit softmax regression with a temperature, all species weighted equally.

    First the identities are dealt into folds, and a regression on the other folds predicts each fold. On these held-out
    predictions the temperature is fitted and `held_out` is measured. Then the final regression is fitted on all rows.

    Args:
        embeddings: unit rows.
        species: of each row.
        identities: of each row.
        names: of all species, in the order of the classes.
        space_id: of the embeddings' space.
        min_probability: below it, the classifier leaves a photo undecided; in [0, 1].
        penalty: L2 penalty of the weights.
        folds: two or more.

    Raises:
        BadDataset: a species has fewer than two identities.
        ValueError: an identity belongs to two species, a row is not a unit vector, or a species is not in `names`.
    """
    check_species_names(names)
    check_unit_rows(embeddings)
    x = embeddings.astype(np.float64)
    class_index = {name: index for index, name in enumerate(names)}
    if unknown := sorted(set(species) - class_index.keys()):
        raise ValueError(f"a row has the unknown species {unknown[0]!r}; known are {', '.join(names)}")
    labels = np.array([class_index[name] for name in species], np.int64)
    fold_of = _assign_folds(names, species, identities, folds)
    logits = np.empty((len(x), len(names)))
    for fold in np.unique(fold_of):
        held_out = fold_of == fold
        weights, bias = softmax_regression(x[~held_out], labels[~held_out], len(names), penalty)
        logits[held_out] = x[held_out] @ weights.T + bias
    temperature = fit_temperature(logits, labels)
    weights, bias = softmax_regression(x, labels, len(names), penalty)
    identities_of = {name: {i for i, s in zip(identities, species, strict=True) if s == name} for name in names}
    return SpeciesClassifier(
        names=names,
        weights=weights,
        bias=bias,
        temperature=temperature,
        space_id=space_id,
        training_counts={
            name: {"identities": len(identities_of[name]), "photos": species.count(name)} for name in names
        },
        held_out=measure_accuracy(softmax(logits / temperature), labels, min_probability),
        min_probability=min_probability,
    )


def softmax_regression(
    x: Float64[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"], classes: int, penalty: float = L2_PENALTY
) -> tuple[Float64[np.ndarray, "k d"], Float64[np.ndarray, " k"]]:
    """Minimize `mean cross-entropy + penalty / 2 * |weights|^2`, with equal weights for the classes.

    The problem is convex: Newton's method with step halving converges.

    Args:
        x: features.
        labels: classes of the rows; each class needs a row.
        classes: number of classes.
        penalty: of the weights; the bias has none.

    Returns:
        (weights, bias); the biases sum to 0.
    """
    design = np.hstack([x, np.ones((len(x), 1))])
    width = design.shape[1]
    row_weights = _equal_class_weights(labels, classes)
    targets = np.eye(classes)[labels]
    ridge = np.append(np.full(width - 1, penalty), 0.0)

    def loss(parameters: Float64[np.ndarray, "k w"]) -> float:
        logits = design @ parameters.T
        largest = logits.max(axis=1)
        entropy = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)) - (targets * logits).sum(axis=1)
        return float(row_weights @ entropy + 0.5 * (ridge * parameters**2).sum())

    parameters = np.zeros((classes, width))
    for _ in range(_MAX_NEWTON_STEPS):
        probabilities = softmax(design @ parameters.T)
        gradient = (row_weights[:, None] * (probabilities - targets)).T @ design + ridge * parameters
        hessian = np.empty((classes, width, classes, width))
        for i, j in combinations_with_replacement(range(classes), 2):
            curvature = row_weights * probabilities[:, i] * ((i == j) - probabilities[:, j])
            hessian[i, :, j] = hessian[j, :, i] = (design * curvature[:, None]).T @ design
            hessian[i, :, j] += (i == j) * np.diag(ridge)
        # Softmax does not change when all biases grow by the same amount; this keeps their sum at 0.
        hessian[:, -1, :, -1] += 1.0
        size = classes * width
        step = np.linalg.solve(hessian.reshape(size, size), gradient.ravel()).reshape(classes, width)
        while loss(parameters - step) > loss(parameters) + 1e-12:
            step = step / 2
        parameters = parameters - step
        if np.abs(step).max() < 1e-9 * max(1.0, np.abs(parameters).max()):
            break
    return parameters[:, :-1], parameters[:, -1]


def fit_temperature(logits: Float64[np.ndarray, "n k"], labels: Int64[np.ndarray, " n"]) -> float:
    """Fit the divisor of held-out logits that makes their softmax calibrated (Guo et al. 2017).

    Minimizes the cross-entropy, with equal weights for the classes and Platt's targets for k classes:
    (n + 1) / (n + k) for the right class, if it has n rows, and 1 / (n + k) for the others. So it is above 0 even if
    every row is right.
    """
    classes = logits.shape[1]
    counts = np.bincount(labels, minlength=classes)[labels][:, None]
    targets = (np.eye(classes)[labels] * counts + 1) / (counts + classes)
    row_weights = _equal_class_weights(labels, classes)

    def slope(sharpness: float) -> float:
        """Compute the derivative of the cross-entropy by 1 / temperature; it increases, since that is convex."""
        return float(row_weights @ ((softmax(logits * sharpness) - targets) * logits).sum(axis=1))

    low, high = _LOG_SHARPNESS
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(np.exp(middle)) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def measure_accuracy(
    probabilities: Float64[np.ndarray, "n k"], labels: Int64[np.ndarray, " n"], min_probability: float
) -> HeldOutAccuracy:
    """Measure how often the most probable species is right, and count the decisions at `min_probability`."""
    classes = probabilities.shape[1]
    predicted = probabilities.argmax(axis=1)
    decided = np.where(probabilities.max(axis=1) >= min_probability, predicted, classes)
    confusion = np.zeros((classes, classes + 1), np.int64)
    np.add.at(confusion, (labels, decided), 1)
    accuracy = float(np.mean([(predicted[labels == label] == label).mean() for label in range(classes)]))
    return HeldOutAccuracy(accuracy, tuple(tuple(row) for row in confusion.tolist()))


def _assign_folds(
    names: tuple[str, ...], species: Sequence[str], identities: Sequence[str], folds: int
) -> Int64[np.ndarray, " n"]:
    """Return the fold of each row. Each species' identities are dealt one by one, so that no fold has all of them."""
    species_of: dict[str, str] = {}
    for identity, name in zip(identities, species, strict=True):
        if species_of.setdefault(identity, name) != name:
            raise ValueError(
                f"the identity {identity!r} belongs to two species, {species_of[identity]} and {name}; give each "
                "identity one species"
            )
    fold_of: dict[str, int] = {}
    for name in names:
        identities_of_species = sort_by_hash(identity for identity, other in species_of.items() if other == name)
        if len(identities_of_species) < 2:
            raise BadDataset(
                f"{name}: has photos of {len(identities_of_species)} identities; at least two are needed, so that one "
                "can be held out"
            )
        fold_of |= {identity: index % folds for index, identity in enumerate(identities_of_species)}
    return np.array([fold_of[identity] for identity in identities], np.int64)


def _equal_class_weights(labels: Int64[np.ndarray, " n"], classes: int) -> Float64[np.ndarray, " n"]:
    """Return a weight for each row; those of one class sum to 1 / classes."""
    return 1.0 / (classes * np.bincount(labels, minlength=classes)[labels])
