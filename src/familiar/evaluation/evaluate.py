"""A model on labelled photos, from files to report: what `familiar evaluate` does."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from familiar.core.errors import BadDataset
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.datasets.split import Split
from familiar.evaluation.report import write_report
from familiar.evaluation.suites import REPLICATES, SEED, SUITES, Measured, measure, run_suites
from familiar.faces.detect import Detector
from familiar.faces.embedder import Embedder

FORMAT_VERSION = 1  # of eval_results.json


def evaluate(
    model: Path,
    data: DataSpec,
    output: Path,
    *,
    suites: Sequence[str] = tuple(SUITES),
    split: str | None = None,
    pairs_file: Path | None = None,
    detector: Detector | None = None,
    flip: bool = False,
    on_batch: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure `model` and write `eval_results.json`, the pictures and `report.html`; the results.

    `split` "test" or "all"; None is "test" where every identity is known to the run beside the model.
    """
    for name in suites:
        if name not in SUITES:
            raise BadDataset(f"no suite is called {name!r}; there are {', '.join(SUITES)}")
    embedder = Embedder(model)
    table, side, trained_on = choose_identities(data.read(), model, split)
    measured = measure(embedder, table, pairs_file, detector, flip=flip, on_batch=on_batch)
    parts, verified = run_suites(measured, suites)
    seen = len(trained_on & set(measured.table.names))
    results = _header(measured, data, side, seen, flip) | parts
    write_report(output, results, measured, verified, detector)
    return results


def choose_identities(
    table: IdentityTable, model: Path, split: str | None
) -> tuple[IdentityTable, str, frozenset[str]]:
    """The photos to judge by, which side that is, and the identities the model was trained on.

    `split` "test" or "all"; None is "test" where every identity is known to the run beside the model.
    BadDataset where the test side is asked for and is empty or unknown.
    """
    folder = model if model.is_dir() else model.parent
    path = folder / "split.json"
    if not path.exists():
        if split == "test":
            raise BadDataset(f"{folder}: has no split.json, so there is no test side; use --split all")
        return table, "all", frozenset()
    known = Split.read(path)
    names = set(table.names)
    if split is None:
        split = "test" if names <= {*known.train, *known.validation, *known.test} else "all"
    if split == "test":
        table = table.of_identities(known.test)
        if not known.test:
            raise BadDataset(f"{path}: the run held out no identities to test on; use --split all")
        if not len(table):
            raise BadDataset(f"{path}: none of its test identities is in the data given; use --split all")
    return table, split, frozenset(known.train)


def _header(measured: Measured, data: DataSpec, split: str, seen: int, flip: bool) -> dict[str, Any]:
    metadata, table = measured.embedder.metadata, measured.table
    return {
        "format_version": FORMAT_VERSION,
        "model": {
            "file_id": measured.embedder.bundle.file_id,
            "space_id": metadata.space_id,
            "recipe": metadata.recipe,
            "network": metadata.network,
            "size_bytes": len(measured.embedder.bundle.onnx),
            "embedding_dim": metadata.embedding_dim,
            "tta": "flip" if flip else None,
        },
        "data": {
            "sources": list(data.sources),
            "split": split,
            "identities": len(table.names),
            "photos": len(table),
            "identities_seen_in_training": seen,
            "skipped": [str(error) for error in measured.skipped],
            "fingerprint": table.fingerprint,
        },
        "interval": {"confidence": 0.95, "over": "identities", "replicates": REPLICATES, "seed": SEED},
    }
