"""A model on labeled photos, from files to report: what `familiar evaluate` does."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from familiar.core import run_files
from familiar.core.errors import BadDataset, BadRun, NothingToMeasure
from familiar.datasets.attributes import read_attributes
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.datasets.split import Split
from familiar.detection.detectors import Detector
from familiar.embedding.bundle import load_bundle, resolve_model
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, EvaluationOptions, build_context
from familiar.evaluation.leaks import find_leaks
from familiar.evaluation.missing import missing_metrics
from familiar.evaluation.report import write_report
from familiar.evaluation.results import FORMAT_VERSION, write_results
from familiar.evaluation.suites.catalog import check_names, run_suites
from familiar.evaluation.verification_pairs import ScoredPairs

LeakCheck = Literal["check", "exclude", "skip"]


@dataclass(frozen=True, eq=False)
class Chosen:
    """The photos to judge by, and those of the same data that the model was trained on.

    `known`: every identity that it was trained on, or that its epoch and thresholds were chosen by.
    """

    table: IdentityTable
    split: Literal["test", "all"]
    trained_on: IdentityTable | None = None
    known: frozenset[str] = frozenset()


def evaluate(
    model: Path,
    data: DataSpec,
    output: Path,
    asked: EvaluationOptions | None = None,
    *,
    split: str | None = None,
    leaks: LeakCheck = "check",
    resize_px: int | None = None,
    detector: Detector | None = None,
    flip: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure `model` and write `eval_results.json`, the pictures and `report.html`; the results.

    `split` "test" or "all"; None is "test" where every identity is known to the run beside the model. `leaks`:
    photos that give the answer away are listed, or listed and left out. `resize_px`: what the short side of a photo
    is brought to before the crop is cut from its middle, in place of the bundle's own way.
    """
    asked = asked or EvaluationOptions()
    check_names(asked.suites)
    model = resolve_model(model)  # a name of one that is shipped, not of whatever stands in this folder
    embedder = _embedder(model, resize_px)
    chosen = choose_identities(data.read(), model, split)
    if asked.slices is not None:
        read_attributes(asked.slices, chosen.table, asked.by)  # what is wrong with it is said before the work
    output.mkdir(parents=True, exist_ok=True)  # before the work, lest that be for nothing
    leaking, rows = None, np.arange(len(chosen.table))
    if leaks != "skip":
        leaking = find_leaks(
            chosen.table,
            seen_photos(model),
            on_photo=lambda done: on_progress(f"leak check: {done} photos read"),
        )
        if leaks == "exclude":
            rows = np.setdiff1d(rows, leaking.rows)
    # Photos and blocks are shared out among threads of our own; BLAS's and OpenMP's would only get in their way.
    with threadpool_limits(1):
        measured = build_context(
            embedder,
            chosen.table,
            asked,
            detector,
            rows=rows,
            flip=flip,
            trained_on=chosen.trained_on,
            known=chosen.known,
            on_batch=lambda done: on_progress(f"embedded {done} photos"),
        )
        found = run_suites(measured, asked.suites, on_suite=lambda name: on_progress(f"measuring {name}"))
        results = {
            **_header(measured, data, chosen, resize_px),
            "leaks": leaking and leaking.as_dict() | {"excluded": len(chosen.table) - len(rows)},
            "reasons": found.reasons,
            "absent": dict(missing_metrics(found.parts)),
            **found.parts,
        }
        on_progress("writing the report")
        write_results(output / "eval_results.json", results, found.replicates)
        write_report(output, results, measured, _judged(measured))
    return results


def _judged(measured: EvaluationContext) -> ScoredPairs | None:
    try:
        return measured.judged
    except NothingToMeasure:
        return None


def choose_identities(table: IdentityTable, model: Path, split: str | None) -> Chosen:
    """`split` "test" or "all"; None is "test" where every identity is known to the run beside the model.

    BadDataset where the test side is asked for and is empty or unknown.
    """
    path = run_folder(model) / run_files.SPLIT
    if not path.exists():
        if split == "test":
            raise BadDataset(f"{path.parent}: has no split.json, so there is no test side; use --split all")
        return Chosen(table, "all")
    known = Split.read(path)
    names = set(table.names)
    if split is None:
        split = "test" if names <= {*known.train, *known.validation, *known.test} else "all"
    trained_on = table.of_identities(known.train)
    seen = frozenset({*known.train, *known.validation})
    if split == "all":
        return Chosen(table, "all", trained_on, seen)
    tested = table.of_identities(known.test)
    if not known.test:
        raise BadDataset(f"{path}: the run held out no identities to test on; use --split all")
    if not len(tested):
        raise BadDataset(f"{path}: none of its test identities is in the data given; use --split all")
    return Chosen(tested, "test", trained_on, seen)


def seen_photos(model: Path) -> IdentityTable | None:
    """What the run beside the model was trained on and chosen by; None where there is no run, or its photos moved."""
    folder = run_folder(model)
    try:
        split = Split.read(folder / run_files.SPLIT)
        return DataSpec.recorded(folder).read().of_identities({*split.train, *split.validation})
    except (BadRun, BadDataset):
        return None


def run_folder(model: Path) -> Path:
    return model if model.is_dir() else model.parent


def _embedder(model: Path, resize_px: int | None) -> Embedder:
    bundle = load_bundle(model)
    if resize_px is None:
        return Embedder(bundle)
    try:
        changed = replace(bundle.metadata.preprocessing, resize="center_crop", resize_px=resize_px)
    except ValueError as error:
        raise BadDataset(f"--resize-px: {error}") from error
    return Embedder(replace(bundle, metadata=replace(bundle.metadata, preprocessing=changed)))


def _header(measured: EvaluationContext, data: DataSpec, chosen: Chosen, resize_px: int | None) -> dict[str, Any]:
    metadata, table = measured.embedder.metadata, measured.table
    names = set(table.names)
    trained = names & set(() if chosen.trained_on is None else chosen.trained_on.names)
    return {
        "format_version": FORMAT_VERSION,
        "model": {
            "file_id": measured.embedder.bundle.file_id,
            "space_id": metadata.space_id,
            "recipe": metadata.recipe,
            "network": metadata.network,
            "size_bytes": len(measured.embedder.bundle.onnx),
            "embedding_dim": metadata.embedding_dim,
            "tta": "flip" if measured.flip else None,
            "thresholds_fitted": metadata.calibration.fitted,
            "resize_px": resize_px,
        },
        "data": {
            "sources": list(data.sources),
            "split": chosen.split,
            "identities": len(table.names),
            "photos": len(table),
            "identities_seen_in_training": len(trained),
            "identities_validated_on": len((names & chosen.known) - trained),
            "skipped": [str(error) for error in measured.skipped],
            "fingerprint": table.fingerprint,
        },
        "interval": {"confidence": 0.95, "over": "identities", "replicates": REPLICATES, "seed": SEED},
    }
