"""`familiar export`: export a training run, or what is shipped with the package, as one file."""

import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from familiar.cli.console import print_json
from familiar.cli.options import FILE, json_option, license_option, max_megapixels_option

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.embedding.bundle import Bundle
    from familiar.export.precision import Precision

# export.precision's own, which imports onnx
PRECISIONS = ("float32", "float16", "int8-weights", "int4-weights", "mixed", "int8")
BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


class Size(click.ParamType):
    """A file size: `308KB`, `2MiB`, or a number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([0-9]+[.]?[0-9]*) *([A-Z]*)", str(value).strip().upper())
        if not match or match[2] not in BYTES:
            self.fail(f"{value!r} is not a size; write it as 308KB, 2MiB or 308000", param, ctx)
        return int(Decimal(match[1]) * BYTES[match[2]])


@click.command()
@click.pass_context
@click.argument("model", metavar="MODEL", type=FILE)
@click.option("--output", "-o", required=True, type=FILE, help="The .onnx file to write.")
@click.option("--data", multiple=True, help="Where the photos of the run are now, if they were moved.")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="Precision of the weights; int8 and mixed compute in 8 bits too. [default: float32]",
)
@click.option(
    "--max-size",
    type=Size(),
    help="Maximum size of the file, such as 308KB or 2MiB: uses the highest precision that fits.",
)
@click.option(
    "--max-auc-drop",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="How much ROC AUC the bundle may lose.",
)
@click.option(
    "--max-recall-drop",
    type=click.FloatRange(0, 1),
    default=0.02,
    show_default=True,
    help="How much recall@1 the bundle may lose.",
)
@click.option(
    "--rounding-photos",
    multiple=True,
    help="Photos like those that the bundle is for, with which weights are rounded to 8 or 4 bits. "
    "[default: the run's training photos]",
)
@click.option(
    "--components",
    type=click.IntRange(1),
    help="Length of the embeddings, one of the run's prefixes: a shorter bundle, such as for phones, whose embeddings "
    "can be compared with the first components of the whole ones. [default: all]",
)
@click.option(
    "--fixed-batch",
    type=click.IntRange(1),
    metavar="N",
    help="For phones: a network of exactly N crops per call, usually 1, of operators that Core ML and NNAPI have.",
)
@license_option
@max_megapixels_option
@json_option
def export(
    context: click.Context,
    model: Path,
    output: Path,
    data: tuple[str, ...],
    precision: "Precision | None",
    max_size: int | None,
    max_auc_drop: float,
    max_recall_drop: float,
    rounding_photos: tuple[str, ...],
    components: int | None,
    fixed_batch: int | None,
    license: str | None,
    as_json: bool,
) -> None:
    """Export a training run as one bundle file.

    MODEL is the output folder of familiar train, or the name of a network that is shipped with the package, which is
    copied: person-mobile, person-nano, pet-mobile, pet-nano, or heads, the detector; with --fixed-batch also a bundle.
    The file is self-contained ONNX.
    The export of a run is compared with the trained network on validation photos; if it loses too much accuracy
    (--max-auc-drop, --max-recall-drop), no file is written. float16 takes half the bytes of float32, int8-weights a
    quarter, int4-weights an eighth; mixed and int8 also compute in 8 bits.

    \b
    Example:
      familiar export runs/cats --output cats.onnx --precision int8-weights
      familiar export runs/nano --output nano.onnx --max-size 308KB
      familiar export runs/server --output phone.onnx --components 64
      familiar export person-mobile --output person-mobile.onnx
      familiar export pet-mobile --output phone.onnx --fixed-batch 1
    """
    from familiar.core.files import make_folder, write_atomically
    from familiar.detection.heads import NETWORK_FILE
    from familiar.embedding.zoo import shipped_bundles

    shipped = ({"heads": NETWORK_FILE} | shipped_bundles()).get(str(model))
    if not model.is_dir() and (model.is_file() or shipped):
        _refuse_settings(context, "fixed_batch" if str(model) != "heads" else "")
        content, change = _copied_or_changed(model, shipped, fixed_batch)
        make_folder(output.parent)
        write_atomically(output, content)
        if as_json:
            print_json({"bundle": output, "size_bytes": len(content)})
        else:
            click.echo(f"{output}: {_size(len(content))}, {model} {change}")
        return
    from familiar.datasets.folders import DataSpec
    from familiar.export.gate import Gate
    from familiar.export.run_export import UNKNOWN_LICENSE, export_bundle

    bundle = export_bundle(
        model,
        output,
        DataSpec(data) if data else None,
        license or UNKNOWN_LICENSE,
        _precisions(precision, max_size, fixed_batch),
        max_size,
        Gate(max_auc_drop, max_recall_drop),
        DataSpec(rounding_photos) if rounding_photos else None,
        components,
        fixed_batch,
    )
    if as_json:
        print_json({"bundle": output, **_describe(bundle)})
        return
    click.echo(f"{output}: {_size(len(bundle.onnx))} in {bundle.metadata.precision}; {_parity(bundle)}")


def _copied_or_changed(model: Path, shipped: Path | None, fixed_batch: int | None) -> tuple[bytes, str]:
    """Return a shipped network as it is, or a bundle with a fixed batch size, and in words which."""
    if fixed_batch:
        from familiar.embedding.bundle import load_bundle, network_bytes
        from familiar.export.phone import serialize_for_phones

        bundle = load_bundle(model)
        content = serialize_for_phones(network_bytes(bundle), bundle.metadata, fixed_batch, model)
        return content, f"with a batch size of {fixed_batch}"
    if shipped is None or model.exists():
        raise click.UsageError(f"{model} is a bundle already; with --fixed-batch 1 it is changed for phones")
    return shipped.read_bytes(), "as it is shipped"


def _refuse_settings(context: click.Context, allowed: str) -> None:
    settings = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in ("model", "output", "as_json", allowed)
        and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if settings:
        raise click.UsageError(f"{context.params['model']} is no run: leave out {', '.join(settings)}")


def _precisions(
    precision: "Precision | None", max_size: int | None, fixed_batch: int | None
) -> "tuple[Precision, ...]":
    if precision:
        return (precision,)
    if max_size is None:
        return PRECISIONS[:1]
    return PRECISIONS[:3] if fixed_batch else PRECISIONS  # phones' processors lack what computes in 8 bits


def _describe(bundle: "Bundle") -> dict[str, Any]:
    metadata = bundle.metadata
    return {
        "size_bytes": len(bundle.onnx),
        "precision": metadata.precision,
        "embedding_dim": metadata.embedding_dim,
        "file_id": bundle.file_id,
        "space_id": metadata.space_id,
        "parity": metadata.parity,
        "results": metadata.results,
    }


def _parity(bundle: "Bundle") -> str:
    parity, results = bundle.metadata.parity, bundle.metadata.results
    difference = f"on {parity['crops']} crops within {parity['max_difference']:.1e} of the trained network"
    before = parity["source"]
    if before is None:
        return difference
    return (
        f"{difference}, mean cosine {parity['mean_cosine']:.4f}; ROC AUC {before['auc']:.4f} -> {results['auc']:.4f}, "
        f"recall@1 {before['recall_at_1']:.4f} -> {results['recall_at_1']:.4f}"
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count:,} bytes"
