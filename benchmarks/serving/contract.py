"""Contract test of the API: responses to valid and invalid requests against the OpenAPI document.

    serve.py contract MODEL [--cases 5000] [--seed 0]

Valid and invalid requests are generated from the OpenAPI document, and the responses must conform to it. For each one
that does not, a command is printed that repeats the request. Exit 1 if there is one.
"""

import argparse
import dataclasses
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import schemathesis
from hypothesis.errors import HypothesisWarning
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema
from schemathesis.python import asgi

from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.photos.decoding import save_photo
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Limits, Settings

DOCUMENT = "/api/v1/openapi.json"
_TOKEN = "the token of the contract"
_OPERATIONS = 38

# The requests of these operations have rules beyond a schema: a photo must be one by its content, a cursor must come
# from a response, a vector must have unit length, a box must not be empty.
_PHOTOS = ("enroll_photos", "detect", "embed", "search_photo", "verify", "verify_identity")
_CURSORS = ("list_photos", "list_identities", "list_faces_of_identity", "list_unassigned_faces")
_BOXES = ("add_face", "set_face_box")
_MAY_REFUSE = (*_PHOTOS, *_CURSORS, *_BOXES, "search")


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py contract", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--cases",
        type=int,
        default=5000,
        help="number of random cases; the edge cases are added, and some cases are drawn twice",
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as root:
        settings = Settings(gallery=drawn_gallery(Path(root), arguments.model), model=arguments.model)
        report = contract(settings, max(1, arguments.cases // _OPERATIONS), seed=arguments.seed)
    print("| cases | failures |")
    print("|---|---|")
    print(f"| {report.cases:,} | {len(report.failures)} |")
    for failure in report.failures:
        print(f"\n{failure}")
    sys.exit(1 if report.failures else None)


@dataclass(frozen=True)
class Contract:
    """Number of requests, and the `failures`, each with a command that repeats the request."""

    cases: int
    failures: tuple[str, ...]


def contract(settings: Settings, examples: int, *, seed: int = 0, operations: Sequence[str] = ()) -> Contract:
    """Send the edge cases and random cases of every operation to a gallery's server.

    Every check of schemathesis applies: no server error, no undocumented status, media type or header, responses that
    conform to their schema, valid requests accepted and invalid ones refused, nothing without the token.

    Args:
        examples: number of random cases per operation.
        operations: ids of the only operations to test; empty: all.
    """
    unlimited = dataclasses.replace(Limits(), wrong_tokens_per_minute=10**9)
    app = make_app(Service(dataclasses.replace(settings, token=_TOKEN, hosts=(asgi.HOST,), limits=unlimited)))
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    accepted = {"expected-statuses": ["2xx", "3xx", "401", "403", "404", "409", "413", "415", "422"]}
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "headers": headers,
            "generation": {
                "deterministic": True,
                "max-examples": examples,
                "no-shrink": True,
                "database": "none",
            },
            "phases": {"stateful": {"enabled": False}},
            "operations": [
                *([{"exclude-operation-id": list(operations), "enabled": False}] if operations else []),
                {"include-operation-id": list(_MAY_REFUSE), "checks": {"positive_data_acceptance": accepted}},
                # Any bytes are a file; one that is no photo is reported in the response.
                {
                    "include-operation-id": ["detect", "embed"],
                    "checks": {"negative_data_rejection": {"enabled": False}},
                },
            ],
        }
    )
    schema = schemathesis.openapi.from_asgi(DOCUMENT, app, config=config, headers=headers)
    cases, failures = 0, []
    warnings.filterwarnings("ignore", "Generating overly large repr", HypothesisWarning)
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            cases += len(event.recorder.interactions)
            failures += [
                f"{event.recorder.label}: {check.failure_info.failure.message}\n{check.failure_info.code_sample}"
                for checks in event.recorder.checks.values()
                for check in checks
                if check.status is Status.FAILURE and check.failure_info is not None
            ]
        elif isinstance(event, events.NonFatalError):
            failures.append(f"{event.label}: {event.value}")
        elif isinstance(event, events.FatalError):
            failures.append(str(event.exception))
    asgi.shutdown_lifespans()
    return Contract(cases, tuple(failures))


def drawn_gallery(root: Path, model: Path) -> Path:
    """Make a clustered gallery of eight drawn cats with three photos each."""
    photos = [
        save_photo(SyntheticPhoto("cats", identity, number, size_px=64).draw(), root / f"{identity}-{number}.png")
        for identity in range(8)
        for number in range(3)
    ]
    embedder = Embedder(model)
    with Store.create(root / "album", Space.from_metadata(embedder.metadata)) as gallery:
        enroll(gallery, embedder, photos)
        cluster(gallery)
    return root / "album"
