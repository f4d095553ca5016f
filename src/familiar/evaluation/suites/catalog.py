"""The suites by name: each takes what was measured and returns its part of `eval_results.json`.

A suite raises `NothingToMeasure` where its figures do not exist for these photos; the results then hold null and the
reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from familiar.core.errors import BadDataset, NothingToMeasure
from familiar.evaluation.context import EvaluationContext, Outcome
from familiar.evaluation.suites.clustering import clustering
from familiar.evaluation.suites.harmonic import harmonic, has_prefixes
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.lfw import has_lfw_files, lfw
from familiar.evaluation.suites.overfitting import knows_training_photos, overfitting
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.robustness import robustness
from familiar.evaluation.suites.separation import separation
from familiar.evaluation.suites.slices import has_slices, slices
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.tta import tta
from familiar.evaluation.suites.verification import verification
from familiar.metrics.bootstrap import Replicates


@dataclass(frozen=True)
class Suite:
    """`applies`: whether it is run where no suite is named; named, it is always run."""

    about: str
    run: Callable[[EvaluationContext], Outcome]
    applies: Callable[[EvaluationContext], bool] = lambda _: True


SUITES: dict[str, Suite] = {
    "retrieval": Suite("recall@1/5/10, MRR, NDCG@10, mAP@R of each photo among the others", retrieval),
    "clustering": Suite("k-means with the true k, and groups found without it", clustering),
    "verification": Suite("same or different over pairs: ROC AUC, EER, accuracy, TAR at FAR", verification),
    "triplets": Suite("how often a stranger is closer, and by how much", triplets),
    "overfitting": Suite("recall@1 of identities trained on against others", overfitting, knows_training_photos),
    "robustness": Suite("what blur, noise, JPEG and the like cost", robustness),
    "tta": Suite("what mirrored and cropped copies of a photo gain and cost", tta),
    "separation": Suite("Dunn indices, silhouette, similarities within and between", separation),
    "identification": Suite("naming known individuals among unknown ones", identification),
    "harmonic": Suite("the headlines for each prefix of the embedding", harmonic, has_prefixes),
    "slices": Suite("the headlines by a column of a CSV, worst first", slices, has_slices),
    "lfw": Suite("Labeled Faces in the Wild, View 2 and View 1", lfw, has_lfw_files),
}


@dataclass(frozen=True, eq=False)
class Results:
    """`parts`: each suite's figures, None where they do not exist, with the reason in `reasons`."""

    parts: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    replicates: dict[str, Replicates] = field(default_factory=dict)


def check_names(names: Sequence[str]) -> None:
    """BadDataset for a suite that there is not."""
    for name in names:
        if name not in SUITES:
            raise BadDataset(f"no suite is called {name!r}; there are {', '.join(SUITES)}")


def run_suites(
    measured: EvaluationContext, names: Sequence[str], on_suite: Callable[[str], None] = lambda _: None
) -> Results:
    """The suites named, or all that apply."""
    check_names(names)
    found = Results()
    asked = list(dict.fromkeys(names)) or [name for name, suite in SUITES.items() if suite.applies(measured)]
    if names and has_slices(measured) and "slices" not in asked:
        asked.append("slices")  # of the suites named
    for name in asked:
        on_suite(name)
        try:
            outcome = SUITES[name].run(measured)
        except NothingToMeasure as error:
            found.parts[name] = None
            found.reasons[name] = str(error)
            continue
        found.parts[name] = outcome.figures
        if outcome.replicates:
            found.replicates[name] = outcome.replicates
    return found
