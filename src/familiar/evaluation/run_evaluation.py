"""Evaluate a model on labeled photos, from files to report: the work of `familiar evaluate`."""

from collections.abc import Callable, Mapping
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
from familiar.detection.detector import Detector
from familiar.embedding.bundle import load_bundle, resolve_model
from familiar.embedding.embedder import Embedder
from familiar.evaluation.centering import center_on_collection
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, EvaluationOptions, build_context
from familiar.evaluation.leaks import find_leaks
from familiar.evaluation.missing import missing_metrics
from familiar.evaluation.report import write_report
from familiar.evaluation.results import EvaluationResults, write_results
from familiar.evaluation.results.document import DataInfo, IntervalSettings, ModelInfo
from familiar.evaluation.results.json_conversion import to_json
from familiar.evaluation.suites.catalog import check_suite_names, run_suites
from familiar.evaluation.verification_pairs import ScoredPairs
from familiar.metrics.bootstrap import Replicates

LeakCheck = Literal["check", "exclude", "skip"]

_REPLICATE_DIGITS = 7  # the metrics are no more exact


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """The photos to evaluate on, and those of the same data that the model was trained on.

    `seen_identities`: every identity that the model was trained on, or that its epoch and thresholds were chosen by;
    None if unknown.
    """

    table: IdentityTable
    split: Literal["test", "all"]
    trained_on: IdentityTable | None = None
    seen_identities: frozenset[str] | None = None


def evaluate(
    model: Path | str,
    data: DataSpec | Path | str,
    output: Path | str,
    options: EvaluationOptions | None = None,
    *,
    split: Literal["test", "all"] | None = None,
    split_of: Path | str | None = None,
    leaks: LeakCheck = "check",
    resize_px: int | None = None,
    detector: Detector | str | None = None,
    flip: bool = False,
    centered: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> EvaluationResults:
    """Evaluate `model` and write `eval_results.json`, the plots and `report.html`.

    Args:
        model: a bundle, a run folder, or the name of a bundle that comes with the package.
        data: a folder with one subfolder of photos per identity, a text such as "synthetic:cats:800x8", or several of
            them as a `DataSpec`.
        output: folder to write to; created if missing.
        options: the suites and their options.
        split: identities to evaluate on: "test" (held out by the run that the model is part of) or "all"; None is
            "test" if that run knows every identity, else "all".
        split_of: the run whose split it is; None: the one that the model is part of. With the run of another model,
            both are evaluated on the same identities.
        leaks: list photos that are leaked ("check"), list them and leave them out ("exclude"), or skip the check.
        resize_px: resize the short side of each photo to this before the center crop, instead of the bundle's own
            preprocessing.
        detector: finds the face in each photo: a detector, or the name of one as for `build_detector`, such as "none"
            if the photos are crops already. None: the one that the model names.
        flip: average each photo's embedding with that of its mirror image.
        centered: subtract the means of the evaluated photos from the embeddings and use the bundle's thresholds for
            galleries: what a gallery of these photos does if the bundle has species means.
        on_progress: called with a line of text.

    Returns:
        The results, as they are written to `eval_results.json`.

    Raises:
        BadBundle: there is no such model.
        BadDataset: an option does not fit the data, or no photo could be embedded.
    """
    options, data, output = options or EvaluationOptions(), DataSpec.from_source(data), Path(output)
    check_suite_names(options.suites)
    model = resolve_model(model)
    embedder = _load_embedder(model, resize_px)
    detector = embedder.detector(detector)
    chosen = select_identities(data.read(), model, split, None if split_of is None else Path(split_of))
    if options.slices is not None:
        read_attributes(options.slices, chosen.table, options.by)  # report its errors before the work
    output.mkdir(parents=True, exist_ok=True)  # fail here rather than after the work
    leaking, rows = None, np.arange(len(chosen.table))
    if leaks != "skip":
        leaking = find_leaks(
            chosen.table,
            seen_photos(model),
            on_photo=lambda done: on_progress(f"leak check: {done} photos read"),
        )
        if leaks == "exclude":
            rows = np.setdiff1d(rows, leaking.rows)
    # Photos and blocks are processed in threads of ours; those of BLAS and OpenMP would only compete with them.
    with threadpool_limits(1):
        context = build_context(
            embedder,
            chosen.table,
            options,
            detector,
            rows=rows,
            flip=flip,
            trained_on=chosen.trained_on,
            seen_identities=chosen.seen_identities or frozenset(),
            on_batch=lambda done: on_progress(f"embedded {done} photos"),
        )
        if centered:
            context = center_on_collection(context)
        suite_results = run_suites(context, options.suites, on_suite=lambda name: on_progress(f"measuring {name}"))
        metrics: dict[str, Any] = dict(suite_results.metrics)
        results = EvaluationResults(
            model=_model_info(context, resize_px, centered),
            data=_data_info(context, data, chosen),
            interval=IntervalSettings(confidence=0.95, resampled="identities", replicates=REPLICATES, seed=SEED),
            leaks=None if leaking is None else leaking.as_results(excluded=len(chosen.table) - len(rows)),
            reasons=suite_results.reasons,
            missing=dict(missing_metrics(to_json(suite_results.metrics))),
            **metrics,
            replicates=_rounded(suite_results.replicates),
        )
        on_progress("writing the report")
        write_results(output / "eval_results.json", results)
        write_report(output, results, context, _scored_pairs(context))
    return results


def _scored_pairs(context: EvaluationContext) -> ScoredPairs | None:
    try:
        return context.scored_pairs
    except NothingToMeasure:
        return None


def select_identities(
    table: IdentityTable, model: Path, split: str | None, split_of: Path | None = None
) -> EvaluationData:
    """Select the identities to evaluate on.

    Args:
        table: the data given.
        model: a bundle or run folder; the run's split is looked for in the same folder.
        split: "test" or "all"; None is "test" if every identity of `table` is known to the run.
        split_of: another run whose split it is. What the model was trained on is then unknown.

    Raises:
        BadDataset: "test" is requested and the test identities are unknown, or none of them is in the data.
    """
    path = run_folder(split_of or model) / run_files.SPLIT
    if not path.exists() and split_of is not None:
        raise BadDataset(f"{path.parent}: is no training run: it has no split.json")
    if not path.exists():
        if split == "test":
            raise BadDataset(f"{path.parent}: has no split.json, so its test identities are unknown; use --split all")
        return EvaluationData(table, "all")
    run_split = Split.read(path)
    names = set(table.names)
    if split is None:
        split = "test" if names <= {*run_split.train, *run_split.validation, *run_split.test} else "all"
    trained_on, seen = None, None
    if split_of is None:
        trained_on = table.select_identities(run_split.train)
        seen = frozenset({*run_split.train, *run_split.validation})
    if split == "all":
        return EvaluationData(table, "all", trained_on, seen)
    test_table = table.select_identities(run_split.test)
    if not run_split.test:
        raise BadDataset(f"{path}: the run held out no identities to test on; use --split all")
    if not len(test_table):
        raise BadDataset(f"{path}: none of its test identities is in the data given; use --split all")
    return EvaluationData(test_table, "test", trained_on, seen)


def seen_photos(model: Path) -> IdentityTable | None:
    """Read the photos that the model was trained on and selected by.

    Returns:
        None if the model is not in a run folder, or the run's photos have been moved.
    """
    folder = run_folder(model)
    try:
        split = Split.read(folder / run_files.SPLIT)
        return DataSpec.from_run(folder).read().select_identities({*split.train, *split.validation})
    except (BadRun, BadDataset):
        return None


def run_folder(model: Path) -> Path:
    """Return the folder that would be the run's, of a bundle or of the run folder itself."""
    return model if model.is_dir() else model.parent


def _load_embedder(model: Path, resize_px: int | None) -> Embedder:
    bundle = load_bundle(model)
    if resize_px is None:
        return Embedder(bundle)
    try:
        preprocessing = replace(bundle.metadata.preprocessing, resize="center_crop", resize_px=resize_px)
    except ValueError as error:
        raise BadDataset(f"--resize-px: {error}") from error
    return Embedder(replace(bundle, metadata=replace(bundle.metadata, preprocessing=preprocessing)))


def _model_info(context: EvaluationContext, resize_px: int | None, centered: bool) -> ModelInfo:
    bundle, metadata = context.embedder.bundle, context.embedder.metadata
    return ModelInfo(
        file_id=bundle.file_id,
        space_id=metadata.space_id,
        recipe=metadata.recipe,
        network=metadata.network,
        size_bytes=len(bundle.onnx),
        embedding_dim=metadata.embedding_dim,
        tta="flip" if context.flip else None,
        thresholds_fitted=metadata.calibration.fitted,
        resize_px=resize_px,
        centered=centered,
    )


def _data_info(context: EvaluationContext, data: DataSpec, chosen: EvaluationData) -> DataInfo:
    table = context.table
    names = set(table.names)
    collections = {name.split("/", 1)[0] for name in names}
    trained, selected = None, None
    if chosen.trained_on is not None and chosen.seen_identities is not None:
        trained = len(names & set(chosen.trained_on.names))
        selected = len(names & chosen.seen_identities) - trained
    return DataInfo(
        sources=tuple(data.sources),
        split=chosen.split,
        identities=len(table.names),
        photos=len(table),
        identities_seen_in_training=trained,
        identities_seen_in_validation=selected,
        skipped=tuple(str(error) for error in context.skipped),
        fingerprint=table.fingerprint,
        collections_trained_on=tuple(sorted(collections & context.embedder.metadata.trained_on.keys())),
    )


def _rounded(replicates: Mapping[str, Replicates]) -> dict[str, tuple[float, ...]]:
    """Round the replicates of each suite, by the paths of their metrics."""
    return {
        f"{suite}.{name}": tuple(round(value, _REPLICATE_DIGITS) for value in values.tolist())
        for suite, suite_replicates in replicates.items()
        for name, values in suite_replicates.items()
    }
