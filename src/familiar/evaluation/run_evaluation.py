"""Evaluate a model on labeled photos, from files to report: the work of `familiar evaluate`."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from familiar.core.errors import NoBundleForSpecies, UnknownSpecies
from familiar.core.files import make_folder
from familiar.datasets.attributes import read_attributes
from familiar.datasets.folders import DataSpec, open_data, open_photo
from familiar.detection.detector import Detector
from familiar.embedding.photos import detector_for
from familiar.evaluation.centering import center_on_collection
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, EvaluationOptions, build_context
from familiar.evaluation.evaluated_model import model_info, open_evaluated_model
from familiar.evaluation.leaks import find_leaks
from familiar.evaluation.report import write_report
from familiar.evaluation.results import EvaluationResults, write_results
from familiar.evaluation.results.document import DataInfo, IntervalSettings, RoutingInfo
from familiar.evaluation.suites.catalog import check_suite_names, run_suites
from familiar.evaluation.training_data import EvaluationData, seen_photos, select_identities

LeakCheck = Literal["check", "exclude", "skip"]

_REPLICATE_DIGITS = 7  # the metrics are no more exact


def evaluate(
    model: Path | str,
    data: DataSpec | Path | str | Any,
    output: Path | str | None = None,
    options: EvaluationOptions | None = None,
    *,
    split: Literal["test", "all"] | None = None,
    split_of: Path | str | None = None,
    leaks: LeakCheck = "check",
    resize_px: int | None = None,
    detector: Detector | str | None = None,
    species: str | None = None,
    flip: bool = False,
    not_centered: bool = False,
    providers: Sequence[str] | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> EvaluationResults:
    """Evaluate `model`, and write `eval_results.json`, the plots and `report.html` if a folder is named.

    Args:
        model: a bundle, a run folder, the name of a bundle that comes with the package, or a file of species
            (`.json`). With several bundles a photo is compared with those of the same bundle, and has a similarity of 0
            to others; `slices` has the metrics of each species by its own bundle and thresholds.
        data: a folder with one subfolder of photos per identity, a CSV, a DataFrame or another table as for
            `datasets.read_table`, a text such as "synthetic:cats:800x8", or several sources as a `DataSpec`.
        output: folder to write to; created if missing. None: nothing is written.
        options: the suites and their options.
        split: identities to evaluate on: "test" (held out by the run that the model is part of) or "all"; None is
            "test" if that run knows every identity, else "all".
        split_of: the run whose split it is; None: the one that the model is part of. With the run of another model,
            both are evaluated on the same identities.
        leaks: list photos that are leaked ("check"), list them and leave them out ("exclude"), or skip the check.
        resize_px: resize the short side of each photo to this before the center crop, instead of the bundle's own
            preprocessing. Not with several bundles.
        detector: finds the face in each photo: a detector, or the name of one as for `build_detector`, such as "none"
            if the photos are crops already. None: the one that the model names; none if a face fills nearly all of each
            photo, which the log says.
        species: of all photos; None: what the detector says.
        flip: average each photo's embedding with that of its mirror image.
        not_centered: compare embeddings as they are, also those of a bundle that has species means. By default these
            are compared as a gallery of the evaluated photos compares them: less the means of the photos, and with the
            bundle's thresholds for galleries.
        providers: execution providers of ONNX Runtime; None: the CPU.
        on_progress: called with a line of text.

    Returns:
        The results, as they are written to `eval_results.json`.

    Raises:
        BadBundle: there is no such model.
        BadDataset: an option does not fit the data or the model, or no photo could be embedded.
    """
    options = options or EvaluationOptions()
    check_suite_names(options.suites)
    opened = open_evaluated_model(model, resize_px, providers)
    paths = [bundle.path for bundle in opened.all_bundles]
    spec, table = open_data(data)
    chosen = select_identities(table, paths, split, None if split_of is None else Path(split_of))
    if options.slices is not None:
        read_attributes(options.slices, chosen.table, options.by)  # report its errors before the work
    detector = detector_for(opened, chosen.table.photos, detector, open_photo=open_photo)
    if output is not None:
        make_folder(Path(output))  # fail here rather than after the work
    leak_results, rows = None, np.arange(len(chosen.table))
    if leaks != "skip":
        leak_results, leaking_rows = find_leaks(
            chosen.table,
            seen_photos(paths),
            on_photo=lambda done: on_progress(f"leak check: {done} photos read"),
        )
        if leaks == "exclude":
            rows = np.setdiff1d(rows, leaking_rows)
            leak_results = replace(leak_results, excluded=len(leaking_rows))
    # Photos and blocks are processed in threads of ours; those of BLAS and OpenMP would only compete with them.
    with threadpool_limits(1):
        context = build_context(
            opened,
            chosen.table,
            options,
            detector,
            rows=rows,
            species=species,
            flip=flip,
            trained_on=chosen.trained_on,
            seen_identities=chosen.seen_identities or frozenset(),
            on_photo=lambda done: on_progress(f"embedded {done} photos"),
        )
        if not not_centered:
            context = center_on_collection(context)
        suite_results = run_suites(context, options.suites, on_suite=lambda name: on_progress(f"measuring {name}"))
        results = EvaluationResults(
            model=model_info(context, resize_px),
            data=_data_info(context, spec, chosen),
            interval=IntervalSettings(confidence=0.95, resampled="identities", replicates=REPLICATES, seed=SEED),
            leaks=leak_results,
            reasons=suite_results.reasons,
            missing=suite_results.missing,
            figures=suite_results.figures,
            replicates={
                path: tuple(round(value, _REPLICATE_DIGITS) for value in values.tolist())
                for path, values in suite_results.replicates.items()
            },
        )
        if output is not None:
            on_progress("writing the report")
            write_results(Path(output, "eval_results.json"), results)
            write_report(Path(output), results, context)
    return results


def _data_info(context: EvaluationContext, data: DataSpec, chosen: EvaluationData) -> DataInfo:
    table = context.table
    names = set(table.names)
    collections = {name.split("/", 1)[0] for name in names}
    trained_collections = {name for bundle in context.model.all_bundles for name in bundle.metadata.trained_on}
    trained, selected = None, None
    if chosen.trained_on is not None and chosen.seen_identities is not None:
        trained = len(names & set(chosen.trained_on.names))
        selected = len(names & chosen.seen_identities) - trained
    return DataInfo(
        sources=data.sources or ("a table in memory",),
        split=chosen.split,
        identities=len(table.names),
        photos=len(table),
        identities_seen_in_training=trained,
        identities_seen_in_validation=selected,
        skipped=tuple(str(error) for error in context.skipped),
        fingerprint=table.fingerprint,
        collections_trained_on=tuple(sorted(collections & trained_collections)),
        routing=_routing_info(context),
    )


def _routing_info(context: EvaluationContext) -> RoutingInfo | None:
    if () in context.model.bundles:
        return None
    photos = Counter(str(species) for species in context.species)
    without_bundle = sum(isinstance(error, NoBundleForSpecies | UnknownSpecies) for error in context.skipped)
    return RoutingInfo(dict(sorted(photos.items())), without_bundle)
