"""Labeled Faces in the Wild by its own protocol: View 2 for reporting, View 1 for model selection."""

from pathlib import Path

from familiar.core.errors import BadDataset, NothingToMeasure
from familiar.datasets.pairs import FoldedPairs, read_lfw_folds
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, SuiteResult, combine, restrict_pairs
from familiar.evaluation.results.figures import Figure, make_figures
from familiar.metrics.bootstrap import Replicates, verification_replicates
from familiar.metrics.folds import folded_accuracy
from familiar.metrics.pairs import pair_similarities
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import accuracy_at, best_accuracy, roc_auc

VIEW_2 = "pairs.txt"
MAX_SKIPPED_SHARE = 0.02  # of the pairs of View 2, because photos cannot be read or leak
DEV_TRAIN, DEV_TEST = "pairsDevTrain.txt", "pairsDevTest.txt"


def has_lfw_files(context: EvaluationContext) -> bool:
    """Tell whether a pairs file of LFW's lies in the data's folders, and no other pairs file is given."""
    if context.options.pairs_file is not None:  # then only the photos that it names are embedded
        return False
    return _has_pairs_file(context)


def _has_pairs_file(context: EvaluationContext) -> bool:
    return any(_find_file(context, name) is not None for name in (VIEW_2, DEV_TEST))


def lfw(context: EvaluationContext) -> SuiteResult:
    """Measure the views whose pairs files lie in the data's folders and whose photos are all in the data.

    View 2: ten folds, each at the threshold that is best on the other nine; mean and standard error. View 1: the
    threshold is fitted on the pairs of DevTrain and evaluated on those of DevTest. A view that cannot be measured is
    without figures, and `missing` says why.
    """
    if not _has_pairs_file(context):
        raise NothingToMeasure(
            f"lfw: none of the data's folders holds {VIEW_2} or {DEV_TEST}; put LFW's pairs files there"
        )
    views: dict[str, SuiteResult] = {}
    missing: dict[str, str] = {}
    for name, measure in (("view_2", _view_2), ("view_1", _view_1)):
        try:
            views[name] = measure(context)
        except (BadDataset, NothingToMeasure) as error:
            missing[name] = str(error)
    if not views:
        raise NothingToMeasure("lfw: " + "; ".join(missing.values()))
    combined = combine(views)
    figures = combined.figures | dict.fromkeys(missing, Figure(None))
    return SuiteResult(figures, combined.replicates, missing)


def _view_2(context: EvaluationContext) -> SuiteResult:
    folded, skipped = _read_pairs(context, VIEW_2)
    if skipped > MAX_SKIPPED_SHARE * (skipped + len(folded.fold)):
        raise NothingToMeasure(f"{VIEW_2}: the photos of {skipped} of its pairs are not in the evaluation")
    scores = pair_similarities(context.embeddings, folded.pairs)
    same = folded.pairs.same
    accuracy = folded_accuracy(scores, same, folded.fold)
    values = {
        "accuracy": accuracy.mean,
        "standard_error": accuracy.standard_error,
        "auc": roc_auc(roc_counts(scores[same], scores[~same])),
        "pairs": len(scores),
        "skipped_pairs": skipped,
        "folds": [
            {"accuracy": fold_accuracy, "threshold": threshold}
            for fold_accuracy, threshold in zip(accuracy.accuracies.tolist(), accuracy.thresholds.tolist(), strict=True)
        ],
    }
    return SuiteResult(make_figures(values))


def _view_1(context: EvaluationContext) -> SuiteResult:
    train_pairs = _read_pairs(context, DEV_TRAIN)[0].pairs
    folded, skipped = _read_pairs(context, DEV_TEST)
    test_pairs = folded.pairs
    train_scores = pair_similarities(context.embeddings, train_pairs)
    threshold = best_accuracy(roc_counts(train_scores[train_pairs.same], train_scores[~train_pairs.same]))[1]
    scores = pair_similarities(context.embeddings, test_pairs)
    counts = roc_counts(scores[test_pairs.same], scores[~test_pairs.same])
    drawn = verification_replicates(
        scores,
        context.labels[test_pairs.left],
        context.labels[test_pairs.right],
        threshold=threshold,
        replicates=REPLICATES,
        seed=SEED,
        only=("auc", "accuracy_at_threshold"),
    )
    replicates: Replicates = {"accuracy": drawn["accuracy_at_threshold"], "auc": drawn["auc"]}
    values = {
        "accuracy": accuracy_at(counts, threshold),
        "threshold": threshold,
        "auc": roc_auc(counts),
        "pairs": len(scores),
        "skipped_pairs": skipped,
    }
    return SuiteResult(make_figures(values, replicates), replicates)


def _read_pairs(context: EvaluationContext, name: str) -> tuple[FoldedPairs, int]:
    """Read the pairs of a file whose photos were both embedded, and the number of its other pairs."""
    path = _find_file(context, name)
    if path is None:
        raise NothingToMeasure(f"{name} is in none of the data's folders")
    folded = read_lfw_folds(path, context.full_table)
    pairs, mask = restrict_pairs(folded.pairs, context.rows, len(context.full_table))
    return FoldedPairs(pairs, folded.fold[mask]), len(mask) - len(pairs.left)


def _find_file(context: EvaluationContext, name: str) -> Path | None:
    """Find a protocol file in a data root, the parent of the identity folders."""
    roots = sorted({photo.parent.parent for photo in context.full_table.photos if isinstance(photo, Path)})
    return next((root / name for root in roots if (root / name).is_file()), None)
