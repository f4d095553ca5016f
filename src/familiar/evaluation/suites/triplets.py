"""Triplets: is an anchor closer to its positive than to a negative? Over all triplets, or a sample of them."""

from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult, resample_means
from familiar.evaluation.results.figures import make_figures
from familiar.metrics.roc import MAX_SAME_PAIRS, pair_totals
from familiar.metrics.triplets import all_triplets, sampled_triplets

SAMPLED_TRIPLETS = 20_000  # as in the article on the mobile pet embedder


def triplets(context: EvaluationContext) -> SuiteResult:
    """Measure violation rate and average margin, with 95 % intervals over the anchors' identities."""
    use_all = pair_totals(context.labels)[0] <= MAX_SAME_PAIRS
    totals = (
        all_triplets(context.embeddings, context.labels, context.ranked_queries)
        if use_all
        else sampled_triplets(context.embeddings, context.labels, SAMPLED_TRIPLETS, SEED)
    )
    anchor_values = {
        "violation_rate": totals.violations / totals.triplets,
        "average_margin": totals.margins / totals.triplets,
    }
    replicates = resample_means(anchor_values, totals.identity, totals.triplets.astype(float))
    values = {
        "sampling": "all" if use_all else "sampled",
        "triplets": totals.count,
        "seed": SEED,
        "violation_rate": totals.violation_rate,
        "average_margin": totals.average_margin,
    }
    return SuiteResult(make_figures(values, replicates), replicates)
