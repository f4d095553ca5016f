"""Export of a finished run as a bundle: converted, compared with its source, calibrated on validation identities."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from jaxtyping import Float32, Int, UInt8
from torch import Tensor

from familiar.conversion.pixel_input import take_pixels
from familiar.core.calibration import Calibration
from familiar.core.errors import BadDataset, BadRecipe, BadRun, GateRefused, ParityFailed, TooLarge
from familiar.core.files import make_folder, write_atomically
from familiar.core.species_means import SpeciesMeans
from familiar.core.vectors import prefix
from familiar.datasets.folders import DataSpec, IdentityTable, open_data
from familiar.embedding.bundle import Bundle, BundleMetadata, load_bundle, serialize_bundle
from familiar.export.gate import DEFAULT_GATE, MIN_SAME_SPACE_COSINE, Gate, GateMetrics, gate_metrics
from familiar.export.onnx import onnx_bytes
from familiar.export.parity import Parity, embed_with_export, embed_with_source, require_parity
from familiar.export.phone import serialize_for_phones
from familiar.export.precision import Precision, to_float16
from familiar.export.quantize import quantize_all, quantize_mixed, quantize_weights, quantize_weights_to_4_bits
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, sequential_batches
from familiar.metrics.calibration import calibrate
from familiar.models.heads import truncate_head
from familiar.models.quantized import round_to_8_bits
from familiar.neighbors.centering import Centering
from familiar.photos.preprocessing import Preprocessing
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder

UNKNOWN_LICENSE = "not stated; the terms of the photos it was trained on may bind it"
BATCH_SIZE = 64
CALIBRATION_PHOTOS = 256  # with more, the ranges of the layers' values hardly grow
MEAN_PHOTOS = 400  # of each collection, for its mean
MEAN_DECIMALS = 4  # as text they are a good part of a small bundle
MEASURED_PRECISIONS: tuple[Precision, ...] = (
    "int8",
    "mixed",
    "int8-weights",
    "int4-weights",
)  # parity alone does not bound their loss


@dataclass(frozen=True, eq=False)
class _Source:
    """A run's network and its embeddings of the validation photos.

    `prefixes`: the lengths to which its embeddings may be truncated, the last of which is their own.
    `rounding_table`: photos with which weights are rounded to few bits; None for those that it was trained on.
    `rounded_embeddings`, only with `quantize.aware`: those of the network with rounding, as it was trained and
    validated, which an int8 export has to match.
    """

    run: RunFolder
    recipe: Recipe
    prefixes: tuple[int, ...]
    table: IdentityTable
    rounding_table: IdentityTable | None
    model: bytes
    photos: FaceDataset
    embeddings: Float32[np.ndarray, "n d"]
    rounded_embeddings: Float32[np.ndarray, "n d"] | None

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        return self.photos.table.labels

    def model_in_precision(self, precision: Precision) -> bytes:
        if precision == "float32":
            return self.model
        if precision == "float16":
            return to_float16(self.model)
        quantizers = {
            "int8-weights": quantize_weights,
            "int4-weights": quantize_weights_to_4_bits,
            "mixed": quantize_mixed,
            "int8": quantize_all,
        }
        return quantizers[precision](self.model, self.calibration_photos)

    @cached_property
    def calibration_photos(self) -> Float32[np.ndarray, "n 3 s s"]:
        table = self.rounding_table or self.run.split().select(self.table, "train")
        return _calibration_photos(table, self.recipe)


@dataclass(frozen=True)
class _ExportCheck:
    """Comparison of an exported network with its source on the validation photos.

    `source` and `exported` are None if the validation identities make no pairs. `same_space`: the export's embeddings
    may be compared with the source's.
    """

    parity: Parity
    source: GateMetrics | None
    exported: GateMetrics | None
    same_space: bool


def export_bundle(
    run_dir: Path | str,
    output: Path | str,
    data: DataSpec | Path | str | Any | None = None,
    license: str = UNKNOWN_LICENSE,
    precisions: Sequence[Precision] = ("float32",),
    max_bytes: int | None = None,
    gate: Gate = DEFAULT_GATE,
    rounding_photos: DataSpec | Path | str | None = None,
    components: int | None = None,
    fixed_batch: int | None = None,
) -> Bundle:
    """Write the best network of a run to `output` as one bundle, in the first of `precisions` that passes all checks.

    The checks: it computes what its source does as closely as its precision allows, it passes `gate`, and its whole
    file has at most `max_bytes`. Nothing is written unless all are passed.

    Args:
        run_dir: folder of the run.
        output: the bundle's file; its folder is created.
        data: where the run's photos are, if they are no longer where the run read them, or a table of them.
        license: terms of use, stored in the bundle.
        precisions: in the order in which they are tried.
        max_bytes: largest size of the bundle; by default any.
        gate: largest loss of recognition quality.
        rounding_photos: photos like those that the bundle is for, with which weights are rounded to few bits; by
            default those that the run was trained on.
        components: length of the bundle's embeddings, one of the prefixes that the run was trained with. They are the
            first components of the whole embeddings, so both can be compared; thresholds and probabilities are fitted
            at this length.
        fixed_batch: crops per call, for phones (`phone.serialize_for_phones`); by default any number.

    Returns:
        The bundle, as it is read back from the file.

    Raises:
        ParityFailed, GateRefused, TooLarge: no precision passes the checks.
        BadRun: the run or its photos are missing, or there are too few photos to calibrate 8 bits.
        BadRecipe: the run's embeddings cannot be truncated to so many components.
        BadDataset: `rounding_photos` has no photos.
        BadBundle: the network cannot have a fixed batch size.
    """
    output = Path(output)
    source = _load_source(RunFolder(Path(run_dir)), data, rounding_photos, components)
    refusals: list[GateRefused | ParityFailed] = []
    sizes: dict[int, Precision] = {}
    for precision in precisions:
        try:
            bundle = _build_bundle(source, precision, gate, license, fixed_batch)
        except (GateRefused, ParityFailed) as error:
            refusals.append(error)
            continue
        if max_bytes is None or len(bundle) <= max_bytes:
            make_folder(output.parent)
            write_atomically(output, bundle)
            return load_bundle(output)
        sizes[len(bundle)] = precision
    if not sizes:
        raise refusals[-1]
    smallest = min(sizes)
    raise TooLarge(
        f"{run_dir}: the smallest bundle{' that passes' if refusals else ''} has {smallest:,} bytes (in "
        f"{sizes[smallest]}), more than the {max_bytes:,} asked for; nothing was written. For a smaller bundle train a "
        "smaller network (--recipe pet-nano)"
    )


def _load_source(
    run: RunFolder, data: Any | None, rounding_photos: DataSpec | Path | str | None, components: int | None
) -> _Source:
    recipe = run.recipe()
    prefixes = _prefixes(run, recipe, components)
    rounding_table = None if rounding_photos is None else open_data(rounding_photos)[1]
    network = build_network(recipe)
    load_weights(run.embedder, network=network)
    if components is not None:
        truncate_head(network.head, components)
    try:
        _, table = open_data(run.data_spec() if data is None else data)
        held_out = run.split().select(table, "validation")
    except BadDataset as error:
        raise BadRun(
            f"{run.path}: its photos are not where the run read them; give their new folders with --data ({error})"
        ) from error
    if not len(held_out):
        raise BadRun(
            f"{run.path}: the data has none of the run's validation identities; give the folders it was trained on"
        )
    preprocessing = recipe.input.preprocessing()
    photos = _load_photos(held_out, preprocessing)
    model = onnx_bytes(network, preprocessing.size_px)
    embeddings, rounded = embed_with_source(network, _images(photos)), None
    if recipe.quantize.aware:
        round_to_8_bits(network)
        rounded = embed_with_source(network, _images(photos))
    return _Source(
        run=run,
        recipe=recipe,
        prefixes=prefixes,
        table=table,
        rounding_table=rounding_table,
        model=model,
        photos=photos,
        embeddings=embeddings,
        rounded_embeddings=rounded,
    )


def _prefixes(run: RunFolder, recipe: Recipe, components: int | None) -> tuple[int, ...]:
    """List the lengths to which a run's embeddings may be truncated, up to `components`.

    Raises:
        BadRecipe: `components` is none of them, or the network averages several views.
    """
    valid: set[int] = {*recipe.loss.prefixes, recipe.model.embedding_dim}
    if compatible := run.data()["compatible"]:
        valid.add(compatible["components"])
    lengths = sorted(valid)
    if components is None:
        return tuple(lengths)
    if components not in lengths:
        raise BadRecipe(
            f"{run.path}: its embeddings have {', '.join(map(str, lengths))} components, not {components}; shorter "
            f"ones must be trained: --set loss.prefixes={components},{recipe.model.embedding_dim}"
        )
    if recipe.input.views:
        raise BadRecipe(f"{run.path}: it averages embeddings of several views, which can only be exported whole")
    return tuple(length for length in lengths if length <= components)


def _build_bundle(source: _Source, precision: Precision, gate: Gate, license: str, fixed_batch: int | None) -> bytes:
    """Build the whole bundle in one precision; ParityFailed or GateRefused if it does not pass the checks."""
    recipe = source.recipe
    network = onnx.load_from_string(source.model_in_precision(precision))
    take_pixels(network, recipe.input.preprocessing())
    model = network.SerializeToString(deterministic=True)
    embeddings = embed_with_export(model, _pixels(source.photos))
    check = _check_export(source, embeddings, precision, gate)
    run, *shorter, length = source.run, *source.prefixes
    means = _species_means(source, model, embeddings) if recipe.model.centered else None
    metadata = BundleMetadata(
        space_id=run.space_id if check.same_space else hashlib.sha256(model).hexdigest()[:32],
        embedding_dim=length,
        preprocessing=recipe.input.preprocessing(),
        detector=recipe.input.detector,
        calibration=calibrate(embeddings, source.labels),
        species_means=means,
        prefixes=source.prefixes,
        prefix_calibrations={each: _calibrate_prefix(embeddings, source.labels, means, each) for each in shorter},
        recipe=recipe.name,
        network=recipe.model.name,
        precision=precision,
        trained_on=run.trained_on(),
        taught_by=tuple(run.taught_by()),
        results={
            "on": "the run's validation identities",
            "identities": len(source.photos.table.names),
            "photos": len(source.photos),
            **(asdict(check.exported) if check.exported else dict.fromkeys(GateMetrics.__dataclass_fields__)),
        },
        parity=_parity_record(check),
        license=license,
    )
    if fixed_batch is not None:
        return serialize_for_phones(model, metadata, fixed_batch, run.path)
    return serialize_bundle(model, metadata)


def _calibrate_prefix(
    embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], means: SpeciesMeans | None, length: int
) -> Calibration:
    """Calibrate the similarities of truncated embeddings, less the means of their species if there are any."""
    truncated = prefix(embeddings, length)
    if means is not None:
        truncated = Centering.fit(truncated, means.rows()[:, :length]).apply(truncated)
    return calibrate(truncated, labels)


def _check_export(
    source: _Source, embeddings: Float32[np.ndarray, "n d"], precision: Precision, gate: Gate
) -> _ExportCheck:
    """Compare an export's embeddings with the source's.

    Raises:
        ParityFailed: they differ by more than the precision explains.
        GateRefused: they recognize too much worse.
        BadRun: the loss of an 8-bit precision cannot be measured.
    """
    expected = source.embeddings
    if precision == "int8" and source.rounded_embeddings is not None:
        expected = source.rounded_embeddings
    parity = require_parity(expected, embeddings, precision)
    before, after = gate_metrics(expected, source.labels), gate_metrics(embeddings, source.labels)
    if not (before and after):
        if precision in MEASURED_PRECISIONS:
            raise BadRun(
                f"{source.run.path}: the loss from {precision} cannot be measured, since its validation identities "
                "make no pairs; export it in float32 or float16"
            )
        return _ExportCheck(parity, before, after, same_space=True)  # parity is enough: nothing was given up
    gate.require(before, after, f"{source.run.path} in {precision}")
    same_space = (
        expected is source.embeddings  # the space is that of the network without rounding
        and parity.mean_cosine >= MIN_SAME_SPACE_COSINE
        and DEFAULT_GATE.passes(before, after)
    )
    return _ExportCheck(parity, before, after, same_space)


def _parity_record(check: _ExportCheck) -> dict[str, Any]:
    """Describe for the bundle how close it is to its source, and the source's own metrics on the same crops."""
    return {**asdict(check.parity), "source": asdict(check.source) if check.source else None}


def _species_means(source: _Source, model: bytes, embeddings: Float32[np.ndarray, "n d"]) -> SpeciesMeans:
    """Return the mean of the training photos of each collection, and the calibration of what a gallery compares."""
    table = source.run.split().select(source.table, "train")
    collections = np.array([name.split("/", 1)[0] for name in table.names])[table.labels]
    means: dict[str, tuple[float, ...]] = {}
    for collection in np.unique(collections).tolist():
        rows = np.flatnonzero(collections == collection)
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:MEAN_PHOTOS])
        photos = _load_photos(table.select_rows(rows), source.recipe.input.preprocessing())
        mean = embed_with_export(model, _pixels(photos)).mean(axis=0, dtype=np.float64)
        means[collection] = tuple(np.round(mean, MEAN_DECIMALS).tolist())
    rows_of_means = np.array([means[name] for name in sorted(means)])
    centered = Centering.fit(embeddings, rows_of_means).apply(embeddings)
    return SpeciesMeans(means, calibrate(centered, source.labels))


def _calibration_photos(table: IdentityTable, recipe: Recipe) -> Float32[np.ndarray, "n 3 s s"]:
    """Sample photos, preprocessed as for embedding; none if none can be read."""
    rows = np.sort(np.random.default_rng(0).permutation(len(table))[:CALIBRATION_PHOTOS])
    try:
        photos = _load_photos(table.select_rows(rows), recipe.input.preprocessing())
    except BadDataset:
        return np.empty((0, 3, recipe.input.size_px, recipe.input.size_px), np.float32)
    return torch.cat(list(_images(photos))).numpy()


def _load_photos(table: IdentityTable, preprocessing: Preprocessing) -> FaceDataset:
    read = read_table(table, preprocessing)
    return FaceDataset(read.table, read.crops)


def _pixels(photos: FaceDataset) -> Iterator[UInt8[np.ndarray, "b s s 3"]]:
    for start in range(0, len(photos), BATCH_SIZE):
        yield np.stack([photos.crops[row] for row in range(start, min(start + BATCH_SIZE, len(photos)))])


def _images(photos: FaceDataset) -> Iterator[Tensor]:
    batches: Iterable[Any] = PhotoBatches(
        photos, sequential_batches(range(len(photos)), BATCH_SIZE), torch.device("cpu")
    )
    return (batch.images for batch in batches)
