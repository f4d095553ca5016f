"""Recall@1 of the identities that the model was trained on against that of others, with equal gallery sizes."""

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import MIN_IDENTITIES, REPLICATES, SEED, EvaluationContext, SuiteResult, build_context
from familiar.evaluation.results.figures import make_figures
from familiar.metrics.bootstrap import Replicates, mean_replicates
from familiar.metrics.retrieval import rank_queries

MAX_IDENTITIES = 500
MAX_PHOTOS = 6  # per identity, from which two are drawn at a time
PHOTOS_PER_IDENTITY = 2  # more than that, data sets of few photos do not have
DRAWS = 20


def has_training_photos(context: EvaluationContext) -> bool:
    """Tell whether the data holds photos that the model was trained on."""
    return context.trained_on is not None and len(context.trained_on) > 0


def overfitting(context: EvaluationContext) -> SuiteResult:
    """Measure recall@1 in galleries of equal size: as many identities of either side, two photos of each, 20 draws."""
    if context.trained_on is None or not has_training_photos(context):
        raise NothingToMeasure("overfitting: the data holds none of the identities the model was trained on")
    unseen = context.select_identities(
        set(context.table.names) - context.seen_identities - set(context.trained_on.names)
    )
    trained_names = context.trained_on.with_min_photos(PHOTOS_PER_IDENTITY).names
    unseen_names = unseen.table.with_min_photos(PHOTOS_PER_IDENTITY).names
    identities = min(len(trained_names), len(unseen_names), MAX_IDENTITIES)
    if identities < 2:
        raise NothingToMeasure("overfitting: needs two identities trained on and two others, with two photos each")
    trained_table = context.trained_on.select_identities(_sample(trained_names, identities)).with_max_photos(MAX_PHOTOS)
    trained = build_context(context.model, trained_table, detector=context.detector, flip=context.flip)
    unseen = unseen.select_identities(_sample(unseen_names, identities))
    train_recall, test_recall = (_recall_by_identity(side.embeddings, side.labels) for side in (trained, unseen))
    values = {
        "train_recall_at_1": float(train_recall.mean()),
        "test_recall_at_1": float(test_recall.mean()),
        "gap": float(train_recall.mean() - test_recall.mean()),
        "identities": identities,
        "photos_per_identity": PHOTOS_PER_IDENTITY,
        "draws": DRAWS,
        "seed": SEED,
    }
    replicates = _replicates(train_recall, test_recall) if identities >= MIN_IDENTITIES else {}
    return SuiteResult(make_figures(values, replicates))


def _sample(names: tuple[str, ...], count: int) -> set[str]:
    return set(np.random.default_rng(SEED).permutation(names)[:count].tolist())


def _recall_by_identity(
    embeddings: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]
) -> Float64[np.ndarray, " identities"]:
    """Compute recall@1 of two photos of each identity over all draws; identities with one photo are left out."""
    generator = np.random.default_rng(SEED)
    identities = np.flatnonzero(np.bincount(labels) >= PHOTOS_PER_IDENTITY)
    hits = np.zeros(len(identities))
    for _ in range(DRAWS):
        shuffled = generator.permutation(np.flatnonzero(np.isin(labels, identities)))
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        first = np.searchsorted(labels[order], identities)
        rows = order[(first[:, None] + np.arange(PHOTOS_PER_IDENTITY)).ravel()]
        ranked = rank_queries(embeddings[rows], labels[rows])
        hits += np.bincount(np.searchsorted(identities, ranked.identity), ranked.first_match_rank == 1)
    return hits / (DRAWS * PHOTOS_PER_IDENTITY)


def _replicates(train_recall: Float64[np.ndarray, " k"], test_recall: Float64[np.ndarray, " l"]) -> Replicates:
    """Resample each side by itself, since their identities are different."""
    train, test = (
        mean_replicates({"recall": recall}, np.arange(len(recall)), replicates=REPLICATES, seed=SEED + index)["recall"]
        for index, recall in enumerate((train_recall, test_recall))
    )
    return {"train_recall_at_1": train, "test_recall_at_1": test, "gap": train - test}
