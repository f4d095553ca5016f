"""`familiar watch`."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.commands.gallery.arguments import label, open_or_create
from familiar.cli.console import note
from familiar.cli.options import FILE, album_model_option, embedding_options, exclude_option
from familiar.core.plural import pluralize
from familiar.core.terminal_text import one_line, printable

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.integrations.watch.mqtt import Broker
    from familiar.integrations.watch.outbox import Event
    from familiar.integrations.watch.watch import FolderWatch

_MIN_SECRET_BYTES = 16


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="PHOTOS...", type=FILE)
@click.option("--gallery", "-g", required=True, type=FILE, help="The gallery; created where it is missing.")
@album_model_option
@click.option("--species", metavar="NAME", help="Species to store with each new face.")
@exclude_option
@embedding_options
@click.option(
    "--settle",
    "settle_seconds",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Enroll a file once its size and modification time have not changed for so long.",
)
@click.option(
    "--poll",
    "poll_seconds",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Search the folders at this interval instead of waiting for notices of the system: for network folders. "
    "[default: 10, where there are no notices]",
)
@click.option("--webhook", "webhooks", multiple=True, metavar="URL", help="POST each event there; may be repeated.")
@click.option(
    "--webhook-secret-file",
    "secret_file",
    type=FILE,
    help="Sign what is posted with the secret in this file, of at least 16 bytes (HMAC-SHA256, header "
    "X-Familiar-Signature-256).",
)
@click.option(
    "--mqtt", metavar="HOST", help="Publish each event, and for Home Assistant who was last seen, at this broker."
)
@click.option("--mqtt-login", "login_file", type=FILE, help="With --mqtt: a file with the line USER:PASSWORD.")
@click.option(
    "--frigate",
    "snapshots",
    type=FILE,
    metavar="FOLDER",
    help="With --mqtt: save the snapshots that Frigate publishes there in this folder, and watch it.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON lines on stdout, also on a terminal. [default elsewhere]"
)
def watch(
    folders: tuple[Path, ...],
    gallery: Path,
    models: tuple[str, ...],
    species: str | None,
    exclude: tuple[str, ...],
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    settle_seconds: float,
    poll_seconds: float | None,
    webhooks: tuple[str, ...],
    secret_file: Path | None,
    mqtt: str | None,
    login_file: Path | None,
    snapshots: Path | None,
    as_json: bool,
) -> None:
    """Watch folders, and report who is in new photos.

    PHOTOS are folders. New photos in them are enrolled and their faces clustered, moved and edited ones are followed,
    and deleted ones are noted as missing. Each event is a JSON line on stdout; on a terminal, a readable one. It runs
    until Ctrl+C or SIGTERM; started again, it goes on where it was, also after a kill.

    \b
    Example:
      familiar watch photos/ --gallery album
    """
    from familiar.integrations.watch.watch import FolderWatch, WatchSettings, watch_lock
    from familiar.integrations.watch.webhooks import check_url

    for folder in folders:
        if folder.is_file():
            raise click.BadParameter(f"{folder} is a file: give its folder", param_hint="PHOTOS")
    broker = _read_broker(mqtt, login_file)
    if broker is None and (login_file or snapshots):
        raise click.UsageError("--mqtt-login and --frigate need --mqtt")
    urls, secret = tuple(map(check_url, webhooks)), _read_secret(secret_file)
    settings = WatchSettings(settle_seconds, poll_seconds, tta, species, urls, secret, exclude, broker, snapshots)
    with open_or_create(gallery, models, detector, detector_model, providers) as opened, watch_lock(gallery):
        opened.check_model(opened.embedder, to_compare=False)
        face_detector = opened.detector(detector, detector_model)
        opened.remember_detector(detector, detector_model)
        watching = FolderWatch(
            opened,
            face_detector,
            folders,
            settings,
            on_event=_print_text if sys.stdout.isatty() and not as_json else _print_json_line,
            on_note=lambda text: note(f"familiar watch: {one_line(text)}"),
        )
        with _stopped_by_signals(watching):
            watching.run()


def _read_file(path: Path | None, option: str) -> bytes | None:
    """Return the content of a small file without the space around it; None: there is no file."""
    try:
        return None if path is None else path.read_bytes().strip()
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint=option) from error


def _read_secret(path: Path | None) -> bytes | None:
    secret = _read_file(path, "--webhook-secret-file")
    if secret is not None and len(secret) < _MIN_SECRET_BYTES:
        raise click.BadParameter(
            f"{path}: a secret needs at least {_MIN_SECRET_BYTES} bytes", param_hint="--webhook-secret-file"
        )
    return secret


def _read_broker(address: str | None, login_file: Path | None) -> "Broker | None":
    from familiar.integrations.watch.mqtt import parse_broker

    login = _read_file(login_file, "--mqtt-login")
    text = None if login is None else login.decode("utf-8", "replace")
    return None if address is None else parse_broker(address, text)


@contextlib.contextmanager
def _stopped_by_signals(watching: "FolderWatch") -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end the watch after its batch, and the second one end the process."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def stop(number: int, _: object) -> None:
        with contextlib.suppress(OSError):  # not by `note`: the signal may have interrupted another one
            os.write(2, b"familiar watch: stopping after this batch; again to stop at once\n")
        signal.signal(number, signal.SIG_DFL)
        watching.stop()

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_json_line(event: "Event") -> None:
    from familiar.integrations.watch.outbox import to_json_line

    click.echo(to_json_line(event))  # flushes each line


def _print_text(event: "Event") -> None:
    local_time = datetime.fromisoformat(event["at"]).astimezone()
    click.echo(f"{local_time:%H:%M:%S} {describe(event)}")


def describe(event: "Event") -> str:
    """Describe an event in one line."""
    match event:
        case {"event": "started", "folders": folders, "photos": photos}:
            return f"watching {', '.join(map(printable, folders))}: {pluralize(photos, 'photo')} in the gallery"
        case {"event": kind, "path": path, "faces": faces}:
            return f"{kind} {printable(path)}: {', '.join(map(_describe_face, faces)) or 'no face'}"
        case {"event": kind, "path": path, "previous_path": previous_path} if previous_path != path:
            return f"{kind} {printable(path)}, before {printable(previous_path)}"
        case {"event": kind, "path": path, "reason": reason}:
            return f"{kind} {printable(path)}: {one_line(reason)}"
        case {"event": kind, "path": path}:
            return f"{kind} {printable(path)}"
        case _:
            return event["event"]


def _describe_face(face: dict[str, Any]) -> str:
    name = label(face["identity"], face["name"])
    if face["probability"] is not None:
        return f"{name}, {face['probability']:.0%}"
    return f"{name}{', new' * face['new_identity']}"
