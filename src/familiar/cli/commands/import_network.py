"""`familiar import`: any ONNX network that maps an image to a vector as a bundle."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from familiar.cli.console import StatusLine, note, print_json
from familiar.cli.options import FILE, json_option, license_option, max_megapixels_option, require_parent_folder
from familiar.core.errors import FamiliarError

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.embedding.bundle import Bundle

# conversion.presets' own, which need numpy.
PRESETS = ("sface", "arcface", "facenet", "megadescriptor", "dinov2", "clip", "miewid")


@click.command("import")
@click.argument("network", metavar="NETWORK.onnx", type=FILE)
@click.option("--output", "-o", required=True, type=FILE, help="The bundle to write (.onnx).")
@click.option(
    "--as",
    "preset",
    type=click.Choice(PRESETS),
    help="What it is, if it is one of these; a file that is known needs nothing.",
)
@click.option("--size", type=click.IntRange(16, 1024), help="Side of the crop in pixels, if the file does not say it.")
@click.option("--mean", nargs=3, type=float, help="Subtracted from values in [0, 1], for each channel.")
@click.option("--std", nargs=3, type=click.FloatRange(0, min_open=True), help="Divides the difference.")
@click.option("--color", type=click.Choice(["RGB", "BGR"]), help="Order of the channels that the network takes.")
@click.option(
    "--layout",
    type=click.Choice(["NCHW", "NHWC"]),
    help="Order of the axes; NCHW is channels first. [default: as the file says]",
)
@click.option(
    "--template",
    type=click.Choice(["arcface", "box"]),
    help="Crop faces by their landmarks as ArcFace's networks take them, or by their box.",
)
@click.option("--output-name", help="The output that is the embedding, if there are several.")
@license_option
@click.option("--calibrate", multiple=True, metavar="DATA", help="Labeled photos to fit the thresholds on.")
@click.option("--crops", is_flag=True, help="The photos of --calibrate are cropped faces already.")
@click.option(
    "--detector",
    help="The detector whose faces the network takes, or none for whole photos. [default: the preset's]",
)
@click.option("--detector-model", type=FILE, help="ONNX file of YuNet, for --calibrate.")
@max_megapixels_option
@json_option
def import_network(
    network: Path,
    output: Path,
    preset: str | None,
    size: int | None,
    mean: tuple[float, float, float] | None,
    std: tuple[float, float, float] | None,
    color: Literal["RGB", "BGR"] | None,
    layout: Literal["NCHW", "NHWC"] | None,
    template: Literal["arcface", "box"] | None,
    output_name: str | None,
    license: str | None,
    calibrate: tuple[str, ...],
    crops: bool,
    detector: str | None,
    detector_model: Path | None,
    as_json: bool,
) -> None:
    """Import an ONNX network as a bundle.

    NETWORK.onnx maps an image to a vector. The bundle computes the same, which is verified before it is written, and
    holds all that is needed to use it: how crops are standardized, the detector, and with --calibrate the thresholds.
    An uncalibrated bundle gives similarities, but no verdict.

    \b
    Example:
      familiar import face_recognition_sface_2021dec.onnx --output sface.onnx
      familiar import w600k_r50.onnx --as arcface --license "non-commercial research" --output r50.onnx
      familiar import own.onnx --mean .5 .5 .5 --std .5 .5 .5 --license mine --output own-bundle.onnx
    """
    try:
        from familiar.conversion import calibrate_bundle
        from familiar.conversion import import_network as import_file
    except ModuleNotFoundError as error:
        raise FamiliarError(f"importing needs {error.name}: pip install 'familiar-faces[import]'") from error
    from familiar.datasets.folders import DataSpec
    from familiar.embedding.embedder import Embedder

    require_parent_folder(output)
    bundle = import_file(
        network,
        output,
        preset,
        license=license,
        size_px=size,
        mean=mean,
        std=std,
        color_order=color,
        layout=layout,
        template=template,
        detector=detector,
        output_name=output_name,
        on_warning=note,
    )
    if calibrate:
        status = StatusLine()
        bundle = calibrate_bundle(
            bundle,
            DataSpec(calibrate),
            None if crops else Embedder(bundle).detector(model_path=detector_model),
            on_photo=lambda done, total: status.show(f"calibrating: {done:,}/{total:,} photos"),
            on_warning=note,
        )
        status.clear()
    _print(bundle, as_json)


def _print(bundle: "Bundle", as_json: bool) -> None:
    metadata = bundle.metadata
    if as_json:
        print_json(
            {
                "bundle": bundle.path,
                "size_bytes": len(bundle.onnx),
                "file_id": bundle.file_id,
                "space_id": metadata.space_id,
                "embedding_dim": metadata.embedding_dim,
                "detector": metadata.detector,
                "license": metadata.license,
                "source": metadata.source,
                "max_difference": metadata.parity["max_difference"],
                "calibrated": metadata.calibration.fitted,
            }
        )
        return
    click.echo(
        f"{bundle.path}: {len(bundle.onnx) / 1e6:.1f} MB, embeddings of {metadata.embedding_dim} numbers, crops of "
        f"{metadata.preprocessing.size_px} px, detector {metadata.detector}; within "
        f"{metadata.parity['max_difference']:.0e} of the original"
    )
    if not metadata.calibration.fitted:
        click.echo("not calibrated: it gives similarities, but no verdict; --calibrate DATA fits the thresholds")
