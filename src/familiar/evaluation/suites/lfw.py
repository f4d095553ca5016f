"""Labeled Faces in the Wild by its own rules: View 2 to report by, View 1 to choose a model by."""

from pathlib import Path
from typing import Any

from familiar.core.errors import BadDataset, NothingToMeasure
from familiar.datasets.pairs import FoldedPairs, read_lfw_folds
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, Outcome, restrict_pairs
from familiar.metrics.bootstrap import Replicates, intervals, verification_replicates
from familiar.metrics.folds import folded_accuracy
from familiar.metrics.pairs import pair_similarities
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import accuracy_at, best_accuracy, roc_auc

VIEW_2 = "pairs.txt"
MAX_LEFT_OUT = 0.02  # of View 2, for photos that cannot be read or leak
DEV_TRAIN, DEV_TEST = "pairsDevTrain.txt", "pairsDevTest.txt"


def has_lfw_files(measured: EvaluationContext) -> bool:
    if measured.asked.pairs_file is not None:  # then only the photos that it names are embedded
        return False
    return _any_beside(measured)


def _any_beside(measured: EvaluationContext) -> bool:
    return any(_beside(measured, name) is not None for name in (VIEW_2, DEV_TEST))


def lfw(measured: EvaluationContext) -> Outcome:
    """The views whose pairs files lie beside the identities, and whose photos are all in the data.

    View 2: ten folds, each judged at the threshold best on the other nine; mean and standard error. View 1: the
    threshold is best on DevTrain's pairs, judged on DevTest's. What is missing is None, with its reason.
    """
    if not _any_beside(measured):
        raise NothingToMeasure(
            f"lfw: none of the data's folders holds {VIEW_2} or {DEV_TEST}; put LFW's pairs files there"
        )
    figures: dict[str, Any] = {"reasons": {}}
    replicates: Replicates = {}
    for name, view in (("view_2", _view_2), ("view_1", _view_1)):
        try:
            found = view(measured)
            figures[name] = found.figures
            replicates |= {f"{name}.{figure}": values for figure, values in found.replicates.items()}
        except (BadDataset, NothingToMeasure) as error:
            figures[name] = None
            figures["reasons"][name] = str(error)
    if figures["view_1"] is None and figures["view_2"] is None:
        raise NothingToMeasure("lfw: " + "; ".join(figures["reasons"].values()))
    return Outcome(figures, replicates)


def _view_2(measured: EvaluationContext) -> Outcome:
    folded, left_out = _read(measured, VIEW_2)
    if left_out > MAX_LEFT_OUT * (left_out + len(folded.fold)):
        raise NothingToMeasure(f"{VIEW_2}: {left_out} of its pairs are of photos that are not judged")
    scores = pair_similarities(measured.embeddings, folded.pairs)
    same = folded.pairs.same
    found = folded_accuracy(scores, same, folded.fold)
    figures = {
        "accuracy": found.mean,
        "standard_error": found.standard_error,
        "auc": roc_auc(roc_counts(scores[same], scores[~same])),
        "pairs": len(scores),
        "pairs_left_out": left_out,
        "folds": [
            {"accuracy": accuracy, "threshold": threshold}
            for accuracy, threshold in zip(found.accuracies.tolist(), found.thresholds.tolist(), strict=True)
        ],
    }
    return Outcome(figures)


def _view_1(measured: EvaluationContext) -> Outcome:
    chosen_on = _read(measured, DEV_TRAIN)[0].pairs
    folded, left_out = _read(measured, DEV_TEST)
    judged = folded.pairs
    fitting = pair_similarities(measured.embeddings, chosen_on)
    threshold = best_accuracy(roc_counts(fitting[chosen_on.same], fitting[~chosen_on.same]))[1]
    scores = pair_similarities(measured.embeddings, judged)
    counts = roc_counts(scores[judged.same], scores[~judged.same])
    drawn = verification_replicates(
        scores,
        measured.labels[judged.left],
        measured.labels[judged.right],
        threshold=threshold,
        replicates=REPLICATES,
        seed=SEED,
        only=("auc", "accuracy_at_threshold"),
    )
    replicates = {"accuracy": drawn["accuracy_at_threshold"], "auc": drawn["auc"]}
    figures = {
        "accuracy": accuracy_at(counts, threshold),
        "threshold": threshold,
        "auc": roc_auc(counts),
        "pairs": len(scores),
        "pairs_left_out": left_out,
        "interval": intervals(replicates),
    }
    return Outcome(figures, replicates)


def _read(measured: EvaluationContext, name: str) -> tuple[FoldedPairs, int]:
    """The pairs of a file whose photos were both embedded, and how many others there are."""
    path = _beside(measured, name)
    if path is None:
        raise NothingToMeasure(f"{name} is in none of the data's folders")
    folded = read_lfw_folds(path, measured.whole)
    pairs, kept = restrict_pairs(folded.pairs, measured.rows, len(measured.whole))
    return FoldedPairs(pairs, folded.fold[kept]), len(kept) - len(pairs.left)


def _beside(measured: EvaluationContext, name: str) -> Path | None:
    """A protocol file in one of the folders that hold the identities' own."""
    roots = sorted({photo.parent.parent for photo in measured.whole.photos if isinstance(photo, Path)})
    return next((root / name for root in roots if (root / name).is_file()), None)
