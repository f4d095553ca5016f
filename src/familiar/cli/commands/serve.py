"""`familiar serve`: serve a gallery to browsers and programs."""

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
    help="The gallery's model: a bundle (.onnx), a run folder, the name of a shipped bundle, or a router (.json). "
    "Without it photos can be viewed and identities corrected, but photos cannot be searched or added.",
)
@detector_options
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder from which photos may be shown and enrolled; may be repeated (default: the folders of the enrolled "
    "photos).",
)
@click.option("--report", type=FILE, help="Output folder of `familiar evaluate`, shown on the model page.")
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Bind address; a non-loopback address requires a token."
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="Port; 0 picks a free one."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Another host name that browsers may use (allowed Host header); may be repeated.",
)
@click.option(
    "--token-file",
    type=FILE,
    help="File with the access token (default: the environment variable FAMILIAR_TOKEN).",
)
@click.option("--certificate", type=FILE, help="Certificate chain for HTTPS (PEM).")
@click.option("--certificate-key", type=FILE, help="Private key of the certificate (PEM).")
@click.option("--read-only", is_flag=True, help="Refuse all changes to the gallery.")
def serve(
    folder: Path,
    model: Path | None,
    detector: str | None,
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
    """Serve a gallery as web pages and an HTTP API.

    On the pages you add photos, name, merge and split identities, answer review questions, search and compare; the API
    is under /api/v1. Only this machine can connect unless another --address is given. Ctrl+C stops the server after
    all accepted changes are saved.

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
    """Read the access token. It is no option, because other users could read it in the process list."""
    import os

    if file is None:
        return os.environ.get("FAMILIAR_TOKEN")
    try:
        token = file.read_text("utf-8").strip()
    except UnicodeDecodeError as error:
        raise FamiliarError(f"{file}: not a text file; write the token to it, as ASCII") from error
    if not token:
        raise FamiliarError(f"{file}: empty; write the token to it, for example the output of openssl rand -hex 32")
    return token
