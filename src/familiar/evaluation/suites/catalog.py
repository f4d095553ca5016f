"""The suites by name: each takes an evaluation context and returns its figures.

A suite raises `NothingToMeasure` if its figures do not exist for these photos; the results then hold the reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from familiar.core.errors import BadDataset, NothingToMeasure
from familiar.evaluation.context import EvaluationContext, SuiteResult, combine
from familiar.evaluation.missing import missing_reason
from familiar.evaluation.suites.background import background, has_face_detector
from familiar.evaluation.suites.clustering import clustering
from familiar.evaluation.suites.harmonic import harmonic, has_prefixes
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.lfw import has_lfw_files, lfw
from familiar.evaluation.suites.overfitting import has_training_photos, overfitting
from familiar.evaluation.suites.pixels import has_one_species, pixels
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.robustness import robustness
from familiar.evaluation.suites.separation import separation
from familiar.evaluation.suites.slices import has_slices, slices
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.tta import tta
from familiar.evaluation.suites.verification import verification


@dataclass(frozen=True)
class Suite:
    """A suite. `applies`: whether it is run if no suite is named; a suite that is named is always run."""

    description: str
    run: Callable[[EvaluationContext], SuiteResult]
    applies: Callable[[EvaluationContext], bool] = lambda _: True


SUITES: dict[str, Suite] = {
    "retrieval": Suite("recall@1/5/10, MRR, NDCG@10, mAP@R of each photo among the others", retrieval),
    "clustering": Suite("k-means with the true k, and clustering without it", clustering),
    "verification": Suite("same or different over pairs: ROC AUC, EER, accuracy, TAR at FAR", verification),
    "triplets": Suite("how often a negative is closer than the positive, and by how much", triplets),
    "overfitting": Suite("recall@1 of identities trained on against others", overfitting, has_training_photos),
    "robustness": Suite("accuracy lost to blur, noise, JPEG and other corruptions", robustness),
    "tta": Suite("test-time augmentation by mirror images and crops: gain and cost", tta),
    "background": Suite("accuracy by the face alone, and by the background alone", background, has_face_detector),
    "pixels": Suite(
        "recall@1 and AUC of the gray pixels of the same crops, without a network", pixels, has_one_species
    ),
    "separation": Suite("Dunn indices, silhouette, similarities within and between identities", separation),
    "identification": Suite("open-set identification of known among unknown identities", identification),
    "harmonic": Suite("the headline metrics for each prefix of the embedding", harmonic, has_prefixes),
    "slices": Suite("the headline metrics by a column of a CSV, worst first", slices, has_slices),
    "lfw": Suite("Labeled Faces in the Wild, View 2 and View 1", lfw, has_lfw_files),
}


@dataclass(frozen=True, eq=False)
class SuiteResults(SuiteResult):
    """Results of several suites, by paths with the suite as the first key.

    Attributes:
        reasons: why a suite could not be computed, by its name.
    """

    reasons: dict[str, str] = field(default_factory=dict)


def check_suite_names(names: Sequence[str]) -> None:
    """Check that all suites exist.

    Raises:
        BadDataset: a name is unknown.
    """
    for name in names:
        if name not in SUITES:
            raise BadDataset(f"unknown suite {name!r}; the suites are {', '.join(SUITES)}")


def run_suites(
    context: EvaluationContext, names: Sequence[str], on_suite: Callable[[str], None] = lambda _: None
) -> SuiteResults:
    """Run the suites named, or all that apply if none is named.

    Args:
        context: the embedded photos.
        names: of suites.
        on_suite: called with the name of each suite before it is run.

    Raises:
        BadDataset: a name is unknown.
    """
    check_suite_names(names)
    parts: dict[str, SuiteResult] = {}
    reasons: dict[str, str] = {}
    selected = list(dict.fromkeys(names)) or [name for name, suite in SUITES.items() if suite.applies(context)]
    if names and has_slices(context) and "slices" not in selected:
        selected.append("slices")  # of the suites named
    for name in selected:
        on_suite(name)
        try:
            parts[name] = SUITES[name].run(context)
        except NothingToMeasure as error:
            reasons[name] = str(error)
    all_parts = combine(parts)
    missing = {path: missing_reason(path) for path, figure in all_parts.figures.items() if figure.value is None}
    return SuiteResults(all_parts.figures, all_parts.replicates, missing | all_parts.missing, reasons)
