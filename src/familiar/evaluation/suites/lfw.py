"""Labeled Faces in the Wild by its own rules: View 2 to report by, View 1 to choose a model by."""

from pathlib import Path
from typing import Any

from familiar.core.errors import BadDataset, NothingToMeasure
from familiar.datasets.pairs import FoldedPairs, read_lfw_folds
from familiar.evaluation.measured import REPLICATES, SEED, Measured, Outcome
from familiar.metrics.bootstrap import intervals, verification_replicates
from familiar.metrics.folds import folded_accuracy
from familiar.metrics.pairs import pair_similarities
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import accuracy_at, best_accuracy, roc_auc

VIEW_2 = "pairs.txt"
DEV_TRAIN, DEV_TEST = "pairsDevTrain.txt", "pairsDevTest.txt"


def has_lfw_files(measured: Measured) -> bool:
    return any(_beside(measured, name) is not None for name in (VIEW_2, DEV_TEST))


def lfw(measured: Measured) -> Outcome:
    """The views whose pairs files lie beside the identities, and whose photos were all embedded.

    View 2: ten folds, each judged at the threshold best on the other nine; mean and standard error. View 1: the
    threshold is best on DevTrain's pairs, judged on DevTest's. What is missing is None, with its reason.
    """
    if not has_lfw_files(measured):
        raise NothingToMeasure(
            f"lfw: none of the data's folders holds {VIEW_2} or {DEV_TEST}; put LFW's pairs files there"
        )
    figures: dict[str, Any] = {"reasons": {}}
    for name, view in (("view_2", _view_2), ("view_1", _view_1)):
        try:
            figures[name] = view(measured)
        except (BadDataset, NothingToMeasure) as error:
            figures[name] = None
            figures["reasons"][name] = str(error)
    if figures["view_1"] is None and figures["view_2"] is None:
        raise NothingToMeasure("lfw: " + "; ".join(figures["reasons"].values()))
    return Outcome(figures)


def _view_2(measured: Measured) -> dict[str, Any]:
    folded = _read(measured, VIEW_2)
    scores = pair_similarities(measured.embeddings, folded.pairs)
    same = folded.pairs.same
    found = folded_accuracy(scores, same, folded.fold)
    return {
        "accuracy": found.mean,
        "standard_error": found.standard_error,
        "auc": roc_auc(roc_counts(scores[same], scores[~same])),
        "pairs": len(scores),
        "folds": [
            {"accuracy": accuracy, "threshold": threshold}
            for accuracy, threshold in zip(found.accuracies.tolist(), found.thresholds.tolist(), strict=True)
        ],
    }


def _view_1(measured: Measured) -> dict[str, Any]:
    chosen_on, judged = _read(measured, DEV_TRAIN).pairs, _read(measured, DEV_TEST).pairs
    fitting = pair_similarities(measured.embeddings, chosen_on)
    threshold = best_accuracy(roc_counts(fitting[chosen_on.same], fitting[~chosen_on.same]))[1]
    scores = pair_similarities(measured.embeddings, judged)
    counts = roc_counts(scores[judged.same], scores[~judged.same])
    replicates = verification_replicates(
        scores,
        measured.labels[judged.left],
        measured.labels[judged.right],
        threshold=threshold,
        replicates=REPLICATES,
        seed=SEED,
    )
    found = intervals({name: replicates[name] for name in ("auc", "accuracy_at_threshold")})
    return {
        "accuracy": accuracy_at(counts, threshold),
        "threshold": threshold,
        "auc": roc_auc(counts),
        "pairs": len(scores),
        "interval": {"accuracy": found["accuracy_at_threshold"], "auc": found["auc"]},
    }


def _read(measured: Measured, name: str) -> FoldedPairs:
    path = _beside(measured, name)
    if path is None:
        raise NothingToMeasure(f"{name} is in none of the data's folders")
    return read_lfw_folds(path, measured.table)


def _beside(measured: Measured, name: str) -> Path | None:
    """A protocol file in one of the folders that hold the identities' own."""
    roots = sorted({photo.parent.parent for photo in measured.table.photos if isinstance(photo, Path)})
    return next((root / name for root in roots if (root / name).is_file()), None)
