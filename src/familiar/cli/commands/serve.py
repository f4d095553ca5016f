"""`familiar serve`: serve a gallery to browsers and programs."""

import logging
import os
from pathlib import Path
from typing import Any

import click

from familiar.cli.console import note
from familiar.cli.options import FILE, detector_options, provider_option


@click.command()
@click.argument("folder", metavar="[GALLERY]", type=FILE, required=False)
@click.option(
    "--model",
    "-m",
    "models",
    multiple=True,
    help="Of a new gallery, which remembers it, if it is at another place now, or with --immich: a bundle (.onnx), a "
    "run folder or the name of a shipped bundle. Repeat it for bundles of several species, as SPECIES=MODEL where a "
    "bundle does not say which it is for; with --immich all look for faces, and NAME=MODEL answers only this of "
    "Immich's names of models. [default: pet-mobile for cats and dogs, person-mobile for people]",
)
@detector_options
@provider_option
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
    "--port",
    type=click.IntRange(0, 65_535),
    help="Port; 0 picks a free one (default: 8000, with --immich 3003).",
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
    help="File with the access token, read again at each request, so that another token can replace it (default: the "
    "environment variable FAMILIAR_TOKEN).",
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Let everyone who can reach the server use it: on a trusted network. FAMILIAR_TOKEN is ignored then.",
)
@click.option("--certificate", type=FILE, help="Certificate chain for HTTPS (PEM).")
@click.option("--certificate-key", type=FILE, help="Private key of the certificate (PEM).")
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Path under which a reverse proxy serves these pages, such as /photos (default: what a proxy on this machine "
    "sends as X-Forwarded-Prefix).",
)
@click.option("--read-only", is_flag=True, help="Refuse all changes to the gallery.")
@click.option(
    "--desk",
    is_flag=True,
    help="Open with the lost pets. Without it their page is in the navigation once one is reported lost or found.",
)
@click.option("--immich", is_flag=True, help="Recognize faces for an Immich server, in place of a gallery.")
@click.option(
    "--upstream",
    metavar="URL",
    help="With --immich: another machine-learning server, for search by text and for text in photos.",
)
def serve(
    folder: Path | None,
    models: tuple[str, ...],
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    roots: tuple[Path, ...],
    report: Path | None,
    address: str,
    port: int | None,
    hosts: tuple[str, ...],
    token_file: Path | None,
    no_token: bool,
    certificate: Path | None,
    certificate_key: Path | None,
    root_path: str,
    read_only: bool,
    desk: bool,
    immich: bool,
    upstream: str | None,
) -> None:
    """Serve a gallery as web pages and an HTTP API, or recognize faces for Immich.

    The gallery is created where it is missing. On the pages you add photos, name, merge and split identities, answer
    review questions, search and compare, and look for the owners of found pets; the API is under /api/v1. Only this
    machine can connect unless another --address is given. Ctrl+C stops the server after all accepted changes are saved.

    With --immich there is no GALLERY: an Immich server that has this server's URL in its settings for machine learning
    gets the faces of people and pets. Immich sends no token, so unless it runs on this machine give --no-token.

    \b
    Example:
      familiar serve album
      familiar serve --immich --model person-mobile --model pet-nano
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%Y-%m-%dT%H:%M:%S%z"
    )
    if (certificate is None) != (certificate_key is None):
        raise click.UsageError("--certificate and --certificate-key go together")
    if no_token and token_file is not None:
        raise click.UsageError("give --token-file or --no-token, not both")
    common: dict[str, Any] = {
        "address": address,
        "hosts": hosts,
        "token": None if no_token or token_file is not None else os.environ.get("FAMILIAR_TOKEN"),
        "token_file": token_file,
        "trusted_network": no_token,
        "certificate": certificate,
        "certificate_key": certificate_key,
        "root_path": root_path.rstrip("/"),
        "detector": detector,
        "providers": providers,
    } | ({} if port is None else {"port": port})
    if immich:
        if folder is not None or detector_model is not None or roots or report is not None or read_only or desk:
            raise click.UsageError(
                "--immich goes without GALLERY, --detector-model, --root, --report, --read-only and --desk"
            )
        from familiar.integrations.immich.service import parse_models
        from familiar.web.immich import ImmichSettings, serve_immich

        settings = ImmichSettings(models=parse_models(models), upstream=upstream, **common)
        serve_immich(settings, lambda url: note(f"give this URL to Immich: {url}"))
        return
    if folder is None:
        raise click.UsageError("give a GALLERY, or --immich")
    if upstream is not None:
        raise click.UsageError("--upstream needs --immich")
    from familiar.web.server import serve as serve_gallery
    from familiar.web.settings import Settings

    gallery_settings = Settings(
        gallery=folder,
        models=models,
        detector_model=detector_model,
        report=report,
        roots=roots,
        read_only=read_only,
        desk=desk,
        **common,
    )
    serve_gallery(gallery_settings, lambda url: note(f"{folder}: open {url} in a browser"))
