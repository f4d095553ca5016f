"""A finished run into a bundle: exported, proved, compared with its source, calibrated on validation identities."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor

from familiar.core.errors import BadDataset, BadRun, GateRefused, ParityFailed, TooLarge
from familiar.core.files import write_atomically
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.embedding.bundle import Bundle, BundleMetadata, load_bundle, seal
from familiar.export.gate import COSINE_OF_ONE_SPACE, STANDARD, Figures, Gate, figures
from familiar.export.onnx import onnx_bytes
from familiar.export.parity import Parity, embed_with_export, embed_with_source, require_parity
from familiar.export.precision import Precision, in_float16
from familiar.export.quantize import in_8_bit_weights, in_8_bits, in_mixed_precision
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, in_order
from familiar.metrics.calibration import calibrate
from familiar.models.quantized import round_to_8_bits
from familiar.photos.preprocessing import Preprocessing
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder

UNKNOWN_LICENSE = "not stated; the terms of the photos it was trained on may bind it"
CALIBRATION_PHOTOS = 256  # what a layer's values reach hardly grows with more


@dataclass(frozen=True, eq=False)
class _Source:
    """A run's network, and what it makes of the photos it was validated on.

    `rounded`: the same by the network as it was trained and validated where `quantize.aware`, which int8 has to meet.
    """

    run: RunFolder
    recipe: Recipe
    table: IdentityTable
    model: bytes
    photos: FaceDataset
    embeddings: Float32[np.ndarray, "n d"]
    rounded: Float32[np.ndarray, "n d"] | None

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        return self.photos.table.labels

    def in_precision(self, precision: Precision) -> bytes:
        if precision == "float32":
            return self.model
        if precision == "float16":
            return in_float16(self.model)
        in_8 = {"int8-weights": in_8_bit_weights, "mixed": in_mixed_precision, "int8": in_8_bits}[precision]
        return in_8(self.model, self.calibration_photos)

    @cached_property
    def calibration_photos(self) -> Float32[np.ndarray, "n 3 s s"]:
        return _calibration_photos(self.table.of_identities(self.run.split().train), self.recipe)


def export_run(
    run_dir: Path,
    output: Path,
    data: DataSpec | None = None,
    license: str = UNKNOWN_LICENSE,
    precisions: Sequence[Precision] = ("float32",),
    max_bytes: int | None = None,
    gate: Gate = STANDARD,
) -> Bundle:
    """Write the best network of a run to `output` as one bundle, in the first of `precisions` that will do.

    That is, which computes what its source does as far as its precision lets it, which passes `gate`, and whose whole
    file has at most `max_bytes`. The photos are looked for where the run found them, or in `data`.

    Nothing is written but a bundle that will do: ParityFailed, GateRefused or TooLarge where none does, BadRun where
    the run or its photos are missing, or too few to calibrate 8 bits by.
    """
    source = _source(RunFolder(run_dir), data)
    refused: list[GateRefused | ParityFailed] = []
    sizes: dict[int, Precision] = {}
    for precision in precisions:
        try:
            sealed = _sealed(source, precision, gate, license)
        except (GateRefused, ParityFailed) as error:
            refused.append(error)
            continue
        if max_bytes is None or len(sealed) <= max_bytes:
            output.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(output, sealed)
            return load_bundle(output)
        sizes[len(sealed)] = precision
    if not sizes:
        raise refused[-1]
    smallest = min(sizes)
    raise TooLarge(
        f"{run_dir}: the smallest bundle{' that passes' if refused else ''} has {smallest:,} bytes (in "
        f"{sizes[smallest]}), more than the {max_bytes:,} asked for; nothing was written. Fewer take a smaller network "
        "(--recipe pet-nano)"
    )


def _source(run: RunFolder, data: DataSpec | None) -> _Source:
    recipe = run.recipe()
    network = build_network(recipe)
    load_weights(run.embedder, network=network)
    try:
        table = (data or run.data_spec()).read()
        held_out = table.of_identities(run.split().validation)
    except BadDataset as error:
        raise BadRun(f"{run.path}: its photos are not where it found them; say where they moved ({error})") from error
    if not len(held_out):
        raise BadRun(f"{run.path}: none of its validation identities is in the data given")
    preprocessing = recipe.input.preprocessing()
    photos = _readable(held_out, preprocessing)
    model = onnx_bytes(network, preprocessing.size_px)
    embeddings, rounded = embed_with_source(network, _images(photos)), None
    if recipe.quantize.aware:
        round_to_8_bits(network)
        rounded = embed_with_source(network, _images(photos))
    return _Source(
        run=run,
        recipe=recipe,
        table=table,
        model=model,
        photos=photos,
        embeddings=embeddings,
        rounded=rounded,
    )


def _sealed(source: _Source, precision: Precision, gate: Gate, license: str) -> bytes:
    """The whole bundle in this precision. ParityFailed or GateRefused where it will not do."""
    model = source.in_precision(precision)
    embeddings = embed_with_export(model, _images(source.photos))
    expected = source.embeddings
    if precision == "int8" and source.rounded is not None:
        expected = source.rounded
    parity = require_parity(expected, embeddings, precision)
    before, after = figures(expected, source.labels), figures(embeddings, source.labels)
    if before and after:
        gate.require(before, after, f"{source.run.path} in {precision}")
        alike = parity.mean_cosine >= COSINE_OF_ONE_SPACE and expected is source.embeddings
        same_space = alike and STANDARD.passes(before, after)
    elif precision in ("int8", "mixed", "int8-weights"):
        raise BadRun(
            f"{source.run.path}: what {precision} would cost cannot be measured, for its validation identities make no "
            "pairs; export it in float32 or float16"
        )
    else:  # where nothing was given up the proof is enough
        same_space = True
    run, recipe = source.run, source.recipe
    described = run.data()
    compatible = described.get("compatible")
    prefixes = {
        *recipe.loss.prefixes,
        recipe.model.embedding_dim,
        *([compatible["components"]] if compatible else []),
    }
    metadata = BundleMetadata(
        space_id=run.space_id if same_space else hashlib.sha256(model).hexdigest()[:32],
        embedding_dim=recipe.model.embedding_dim,
        preprocessing=recipe.input.preprocessing(),
        calibration=calibrate(embeddings, source.labels),
        prefixes=tuple(sorted(prefixes)),
        recipe=recipe.name,
        network=recipe.model.name,
        precision=precision,
        trained_on=described["train"],
        taught_by=tuple((described.get("distilled") or {}).get("space_ids", ())),
        results={
            "on": "the run's validation identities",
            "identities": len(source.photos.table.names),
            "photos": len(source.photos),
            **(asdict(after) if after else dict.fromkeys(Figures.__dataclass_fields__)),
        },
        parity=_against_source(parity, before),
        license=license,
    )
    return seal(model, metadata)


def _against_source(parity: Parity, before: Figures | None) -> dict[str, Any]:
    """How near the bundle's embeddings are to its source's, and the source's own figures on the same crops."""
    return {**asdict(parity), "source": asdict(before) if before else None}


def _calibration_photos(table: IdentityTable, recipe: Recipe) -> Float32[np.ndarray, "n 3 s s"]:
    """Some of the photos the network was trained on, as they are in use; none where none can be read."""
    rows = np.sort(np.random.default_rng(0).permutation(len(table))[:CALIBRATION_PHOTOS])
    try:
        photos = _readable(table.rows(rows), recipe.input.preprocessing())
    except BadDataset:
        return np.empty((0, 3, recipe.input.size_px, recipe.input.size_px), np.float32)
    return torch.cat(list(_images(photos))).numpy()


def _readable(table: IdentityTable, preprocessing: Preprocessing) -> FaceDataset:
    read = read_table(table, preprocessing)
    return FaceDataset(read.table, read.crops)


def _images(photos: FaceDataset) -> Iterator[Tensor]:
    batches: Iterable[Any] = PhotoBatches(photos, in_order(range(len(photos)), 64), torch.device("cpu"))
    return (batch.images for batch in batches)
