"""Does the model know the identities it learned from better than others? Recall@1 of both, at equal gallery size."""

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import MIN_IDENTITIES, REPLICATES, SEED, EvaluationContext, Outcome, build_context
from familiar.metrics.bootstrap import Replicates, intervals, mean_replicates
from familiar.metrics.retrieval import rank_queries

MAX_IDENTITIES = 500
MAX_PHOTOS = 6  # of each, from which two are drawn at a time
PHOTOS_EACH = 2  # the most that sets with few photos have
DRAWS = 20


def knows_training_photos(measured: EvaluationContext) -> bool:
    return measured.trained_on is not None and len(measured.trained_on) > 0


def overfitting(measured: EvaluationContext) -> Outcome:
    """Galleries of the same size: as many identities of either side, two photos each, drawn anew twenty times."""
    if measured.trained_on is None or not knows_training_photos(measured):
        raise NothingToMeasure("overfitting: the data holds none of the identities the model was trained on")
    unseen = measured.of_identities(set(measured.table.names) - measured.known - set(measured.trained_on.names))
    known_names = measured.trained_on.with_at_least(PHOTOS_EACH).names
    unseen_names = unseen.table.with_at_least(PHOTOS_EACH).names
    identities = min(len(known_names), len(unseen_names), MAX_IDENTITIES)
    if identities < 2:
        raise NothingToMeasure("overfitting: needs two identities trained on and two others, with two photos each")
    chosen = measured.trained_on.of_identities(_drawn(known_names, identities)).at_most(MAX_PHOTOS)
    known = build_context(measured.embedder, chosen, detector=measured.detector, flip=measured.flip)
    unseen = unseen.of_identities(_drawn(unseen_names, identities))
    trained, tested = (_recall_of_identities(side.embeddings, side.labels) for side in (known, unseen))
    return Outcome(
        {
            "train_recall_at_1": float(trained.mean()),
            "test_recall_at_1": float(tested.mean()),
            "gap": float(trained.mean() - tested.mean()),
            "identities": identities,
            "photos_each": PHOTOS_EACH,
            "draws": DRAWS,
            "seed": SEED,
            "interval": intervals(_replicates(trained, tested)) if identities >= MIN_IDENTITIES else {},
        }
    )


def _drawn(names: tuple[str, ...], count: int) -> set[str]:
    return set(np.random.default_rng(SEED).permutation(names)[:count].tolist())


def _recall_of_identities(
    embeddings: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]
) -> Float64[np.ndarray, " identities"]:
    """Recall@1 of each identity's two photos, over all draws; an identity left with one photo has none to find."""
    generator = np.random.default_rng(SEED)
    identities = np.flatnonzero(np.bincount(labels) >= PHOTOS_EACH)
    hits = np.zeros(len(identities))
    for _ in range(DRAWS):
        shuffled = generator.permutation(np.flatnonzero(np.isin(labels, identities)))
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        first = np.searchsorted(labels[order], identities)
        rows = order[(first[:, None] + np.arange(PHOTOS_EACH)).ravel()]
        ranked = rank_queries(embeddings[rows], labels[rows])
        hits += np.bincount(np.searchsorted(identities, ranked.identity), ranked.first_match_rank == 1)
    return hits / (DRAWS * PHOTOS_EACH)


def _replicates(trained: Float64[np.ndarray, " k"], tested: Float64[np.ndarray, " l"]) -> Replicates:
    """Other people on either side, so each side is drawn by itself."""
    known, unseen = (
        mean_replicates({"recall": side}, np.arange(len(side)), replicates=REPLICATES, seed=SEED + place)["recall"]
        for place, side in enumerate((trained, tested))
    )
    return {"train_recall_at_1": known, "test_recall_at_1": unseen, "gap": known - unseen}
