"""Evaluate truncated embeddings, and queries in the gallery of another bundle, which `familiar evaluate` does not do.

Results have figures and replicates as eval_results.json has them.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from familiar.core.vectors import orthogonal_bridge, prefix, ridge_bridge
from familiar.datasets.folders import DataSpec, IdentityTable, open_photo
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.evaluation.context import EvaluationOptions, SuiteResult, build_context
from familiar.evaluation.perturbation import PerturbationResult, make_setup, measure_results, run_setup
from familiar.evaluation.results.figures import make_figures
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.verification import verification
from papers.figures import Results

OLD_OLD = "old / old"
NEITHER = "new alone / old"
COMPATIBLE = "new compatible / old"
BRIDGED = {  # by maps fitted on photos embedded with both bundles
    "rotated": "new alone, rotated / old",
    "ridge": "new alone, ridge / old",
    "gallery": "new alone / old, ridge",
    "both": "new compatible, ridge / old",
}
LONGER_OLD, LONGER = "longer compatible / old", "longer compatible / longer compatible"
HALF_KEPT, HALF_BRIDGED = "longer compatible / half old", "longer compatible / half old, ridge"


def cut_short(model: Path, photos: Path, lengths: Sequence[int], pairs_file: Path | None = None) -> dict[int, Results]:
    """Evaluate verification and retrieval with the first components only, as `familiar evaluate` would.

    The pairs and the bootstrap draws are those of `familiar evaluate`.
    """
    whole = build_context(Embedder(model), DataSpec((str(photos),)).read(), EvaluationOptions(pairs_file=pairs_file))
    results: dict[int, Results] = {}
    for length in lengths:
        cut = dataclasses.replace(whole, embeddings=prefix(whole.embeddings, length))
        results[length] = results_of({"verification": verification(cut), "retrieval": retrieval(cut)})
    return results


def across(
    old: Path, new_alone: Path, new_compatible: Path, longer: Path, known: IdentityTable, queries: IdentityTable
) -> dict[str, Results]:
    """Evaluate queries and gallery embedded by different bundles, by "query bundle / gallery bundle".

    recall@1 leaves the query's own photo out of the gallery; the AUC's pairs consist of a query and a gallery photo.
    All combinations use the same pairs and bootstrap draws.

    Args:
        old, new_alone, new_compatible: bundle files.
        longer: that of a compatible network with more components. It is compared with old embeddings over the length
            of these. In galleries of which every second photo is missing, these have old embeddings: with zeros for
            the missing components, or mapped, as `gallery migrate` does.
        known: photos on which the maps between the spaces are fitted.
        queries: photos that serve as queries and as the gallery.
    """
    models = [Embedder(model) for model in (old, new_alone, new_compatible)]
    old_known, new_alone_known, new_compatible_known = (_embed(model, known) for model in models)
    rotated = orthogonal_bridge(new_alone_known, old_known)
    to_old, to_new = ridge_bridge(new_alone_known, old_known), ridge_bridge(old_known, new_alone_known)
    compatible_to_old = ridge_bridge(new_compatible_known, old_known)
    old_gallery, new_alone_queries, new_compatible_queries = (_embed(model, queries) for model in models)
    queries_and_galleries = {
        OLD_OLD: (old_gallery, old_gallery),
        "new alone / new alone": (new_alone_queries, new_alone_queries),
        "new compatible / new compatible": (new_compatible_queries, new_compatible_queries),
        NEITHER: (new_alone_queries, old_gallery),
        COMPATIBLE: (new_compatible_queries, old_gallery),
        BRIDGED["rotated"]: (rotated(new_alone_queries), old_gallery),
        BRIDGED["ridge"]: (to_old(new_alone_queries), old_gallery),
        BRIDGED["gallery"]: (new_alone_queries, to_new(old_gallery)),
        BRIDGED["both"]: (compatible_to_old(new_compatible_queries), old_gallery),
    }
    longer_queries, longer_known = (_embed(Embedder(longer), table) for table in (queries, known))
    is_missing = np.arange(len(queries))[:, None] % 2 == 1
    missing = longer_queries.shape[1] - old_gallery.shape[1]
    zeros = np.pad(old_gallery, ((0, 0), (0, missing)))
    mapped = ridge_bridge(old_known, longer_known)(old_gallery)
    queries_and_galleries |= {
        LONGER_OLD: (prefix(longer_queries, old_gallery.shape[1]), old_gallery),
        LONGER: (longer_queries, longer_queries),
        HALF_KEPT: (longer_queries, np.where(is_missing, zeros, longer_queries)),
        HALF_BRIDGED: (longer_queries, np.where(is_missing, mapped, longer_queries)),
    }
    probed = make_setup(queries.labels, np.arange(len(queries)))
    return {
        way: results_of({"across": _outcome(run_setup(probed, query_rows, gallery_rows))})
        for way, (query_rows, gallery_rows) in queries_and_galleries.items()
    }


def _embed(embedder: Embedder, table: IdentityTable) -> np.ndarray:
    embedded = embed_photos(embedder, table.photos, "none", open_photo=open_photo)
    assert not embedded.skipped, embedded.skipped[0]
    return embedded.embeddings


def _outcome(answers: PerturbationResult) -> SuiteResult:
    values, replicates = measure_results(answers)
    return SuiteResult(make_figures(values, replicates), replicates)


def results_of(outcomes: dict[str, SuiteResult]) -> Results:
    """Convert outcomes by suite name to figures and replicates as eval_results.json has them."""
    figures = make_figures({suite: outcome.figures for suite, outcome in outcomes.items()})
    replicates = {
        f"{suite}.{name}": values.tolist()
        for suite, outcome in outcomes.items()
        for name, values in outcome.replicates.items()
    }
    return {"figures": {path: vars(each) for path, each in figures.items()}, "replicates": replicates}
