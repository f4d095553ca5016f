"""The `serve` command: a gallery for a person with a browser, and for programs."""

import logging
from pathlib import Path

import click

from familiar.cli.console import note
from familiar.cli.options import FILE, detector_options
from familiar.core.errors import FamiliarError


@click.command()
@click.argument("folder", metavar="GALLERY", type=FILE)
@click.option(
    "--model",
    "-m",
    type=FILE,
    help="The model of the gallery: a bundle (.onnx), the folder of a run, or the name of a shipped bundle. Without "
    "it, photos can be looked at and corrected, but not searched or taken in.",
)
@detector_options
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder whose photos may be shown and taken in; may be given again. Without it, the folders of the photos "
    "that the gallery knows.",
)
@click.option("--report", type=FILE, help="A folder that `familiar evaluate` wrote, to be shown.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Others than this need a token.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="0: a free one.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name by which browsers may call it.")
@click.option(
    "--token-file",
    type=FILE,
    help="A file that holds the token; else it is in the environment variable FAMILIAR_TOKEN.",
)
@click.option("--certificate", type=FILE, help="For HTTPS: a certificate chain (PEM).")
@click.option("--certificate-key", type=FILE, help="Its key (PEM).")
@click.option("--read-only", is_flag=True, help="Nothing in the gallery can be changed.")
def serve(
    folder: Path,
    model: Path | None,
    detector: str,
    detector_model: Path | None,
    roots: tuple[Path, ...],
    report: Path | None,
    address: str,
    port: int,
    hosts: tuple[str, ...],
    token_file: Path | None,
    certificate: Path | None,
    certificate_key: Path | None,
    read_only: bool,
) -> None:
    """A gallery in the browser, and over HTTP.

    Pages to take photos in, to name, merge and split, to answer questions, to search and compare; everything a
    program may ask is under /api/v1. Only this machine can reach it unless another --address is given. Ctrl+C stops
    it, when all that was acknowledged is written.

    \b
    Example:
      familiar serve album --model pet-nano
    """
    from familiar.web.server import serve as serve_gallery
    from familiar.web.settings import Settings

    if (certificate is None) != (certificate_key is None):
        raise click.UsageError("--certificate and --certificate-key go together")
    settings = Settings(
        gallery=folder,
        model=model,
        detector=detector,
        detector_model=detector_model,
        report=report,
        roots=roots,
        address=address,
        port=port,
        hosts=hosts,
        token=_token(token_file),
        certificate=certificate,
        certificate_key=certificate_key,
        read_only=read_only,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    serve_gallery(settings, lambda url: note(f"{folder}: open {url} in a browser"))


def _token(file: Path | None) -> str | None:
    """Not an option of its own: others on this machine could read it in the list of processes."""
    import os

    if file is None:
        return os.environ.get("FAMILIAR_TOKEN")
    try:
        token = file.read_text("utf-8").strip()
    except UnicodeDecodeError as error:
        raise FamiliarError(f"{file}: no text; write the token to it, as ASCII") from error
    if not token:
        raise FamiliarError(f"{file}: empty; write the token to it, such as what openssl rand -hex 32 gives")
    return token
