"""Is a photo closer to its own identity than to strangers? Over every triplet, or a sample where they are too many."""

from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, Outcome, resampled
from familiar.metrics.bootstrap import intervals, mean_replicates
from familiar.metrics.roc import MAX_SAME_PAIRS, pair_totals
from familiar.metrics.triplets import all_triplets, sampled_triplets

SAMPLED_TRIPLETS = 20_000  # as seed 004 has it


def triplets(measured: EvaluationContext) -> Outcome:
    """Violation rate and average margin, with 95 % intervals over the anchors' identities."""
    every = pair_totals(measured.labels)[0] <= MAX_SAME_PAIRS
    found = (
        all_triplets(measured.embeddings, measured.labels, measured.ranked)
        if every
        else sampled_triplets(measured.embeddings, measured.labels, SAMPLED_TRIPLETS, SEED)
    )
    of_anchors = {
        "violation_rate": found.violations / found.triplets,
        "average_margin": found.margins / found.triplets,
    }
    replicates = resampled(
        found.identity,
        lambda: mean_replicates(of_anchors, found.identity, found.triplets.astype(float), REPLICATES, SEED),
    )
    figures = {
        "which": "all" if every else "sampled",
        "triplets": found.count,
        "seed": SEED,
        "violation_rate": found.violation_rate,
        "average_margin": found.average_margin,
        "interval": intervals(replicates),
    }
    return Outcome(figures, replicates)
