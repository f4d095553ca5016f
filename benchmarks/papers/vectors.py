"""What `familiar evaluate` does not ask: embeddings cut short, and queries in another bundle's gallery.

Answers have the shape of eval_results.json, as far as figures.py reads it.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from familiar.core.vectors import orthogonal_bridge, prefix, ridge_bridge
from familiar.datasets.folders import DataSpec, IdentityTable, open_photo
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.evaluation.context import REPLICATES, SEED, EvaluationOptions, Outcome, build_context
from familiar.evaluation.perturbation import PerturbationResult, answer, probe
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.verification import verification
from familiar.metrics.bootstrap import mean_replicates
from papers.figures import Results

OLD_OLD = "old / old"
NEITHER = "new alone / old"
COMPATIBLE = "new compatible / old"
BRIDGED = {  # learned from photos embedded by both
    "rotated": "new alone, rotated / old",
    "ridge": "new alone, ridge / old",
    "gallery": "new alone / old, ridge",
    "both": "new compatible, ridge / old",
}


def cut_short(model: Path, photos: Path, lengths: Sequence[int], pairs_file: Path | None = None) -> dict[int, Results]:
    """Verification and retrieval of the first components alone, on the pairs and draws of `familiar evaluate`."""
    whole = build_context(Embedder(model), DataSpec((str(photos),)).read(), EvaluationOptions(pairs_file=pairs_file))
    found: dict[int, Results] = {}
    for length in lengths:
        cut = dataclasses.replace(whole, embeddings=prefix(whole.embeddings, length))
        found[length] = results_of({"verification": verification(cut), "retrieval": retrieval(cut)})
    return found


def across(old: Path, alone: Path, compatible: Path, known: IdentityTable, judged: IdentityTable) -> dict[str, Results]:
    """Queries and gallery of the photos of `judged`, as "query / gallery"; bridges are learned from those of `known`.

    recall@1 leaves the query's own photo out of the gallery; the AUC's pairs are of a query and a photo of the
    gallery. Every way has the same pairs and draws of identities.
    """
    models = [Embedder(model) for model in (old, alone, compatible)]
    of_old, of_alone, of_compatible = (_embed(model, known) for model in models)
    rotated = orthogonal_bridge(of_alone, of_old)
    to_old, to_new = ridge_bridge(of_alone, of_old), ridge_bridge(of_old, of_alone)
    compatible_to_old = ridge_bridge(of_compatible, of_old)
    stored, asked, made = (_embed(model, judged) for model in models)
    queries_and_galleries = {
        OLD_OLD: (stored, stored),
        "new alone / new alone": (asked, asked),
        "new compatible / new compatible": (made, made),
        NEITHER: (asked, stored),
        COMPATIBLE: (made, stored),
        BRIDGED["rotated"]: (rotated(asked), stored),
        BRIDGED["ridge"]: (to_old(asked), stored),
        BRIDGED["gallery"]: (asked, to_new(stored)),
        BRIDGED["both"]: (compatible_to_old(made), stored),
    }
    every = probe(judged.labels, np.arange(len(judged)))
    return {
        way: results_of({"across": _outcome(answer(every, queries, gallery))})
        for way, (queries, gallery) in queries_and_galleries.items()
    }


def _embed(embedder: Embedder, table: IdentityTable) -> np.ndarray:
    found = embed_photos(embedder, table.photos, open_photo=open_photo)
    assert not found.skipped, found.skipped[0]
    return found.embeddings


def _outcome(answers: PerturbationResult) -> Outcome:
    found = mean_replicates(
        {"recall_at_1": answers.found},
        answers.probe.identity[answers.probe.queries],
        replicates=REPLICATES,
        seed=SEED,
    )
    figures = {"recall_at_1": answers.recall_at_1, "auc": answers.auc}
    return Outcome(figures, found | {"auc": answers.auc_replicates})


def results_of(outcomes: dict[str, Outcome]) -> Results:
    """Outcomes of suites, by their names, as `familiar evaluate` writes them down."""
    replicates = {
        f"{suite}.{name}": values.tolist()
        for suite, outcome in outcomes.items()
        for name, values in outcome.replicates.items()
    }
    return {suite: outcome.figures for suite, outcome in outcomes.items()} | {"replicates": replicates}
