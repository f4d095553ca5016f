"""What the API promises, and what it answers to whatever it is asked.

    serve.py contract MODEL [--cases 5000] [--seed 0]

Requests of all kinds, right and wrong, are made of the OpenAPI document; the answers must hold to it. For each that
does not, a command is printed that asks the same. Exit 1 where there is one.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema
from schemathesis.python import asgi

from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import Gallery, Space
from familiar.gallery.enrollment.enroll import enroll
from familiar.photos.decoding import save_photo
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Limits, Settings

DOCUMENT = "/api/v1/openapi.json"
_TOKEN = "the token of the contract"
_OPERATIONS = 38

# What these are sent has rules beyond a schema: a photo is one by its content, a cursor is what was answered, a vector
# is of unit length, a box is not empty.
_PHOTOS = ("enroll_photos", "detect", "embed", "search_photo", "verify", "verify_identity")
_CURSORS = ("list_photos", "list_identities", "list_faces_of_identity", "list_unknown_faces")
_BOXES = ("add_face", "move_face")
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
        help="that are drawn; the edge cases come on top, and some are drawn twice",
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as root:
        settings = Settings(_drawn_gallery(Path(root), given.model), given.model)
        said = contract(settings, max(1, given.cases // _OPERATIONS), seed=given.seed)
    print("| cases | broken promises |")
    print("|---|---|")
    print(f"| {said.cases:,} | {len(said.broke)} |")
    for broken in said.broke:
        print(f"\n{broken}")
    sys.exit(1 if said.broke else None)


@dataclass(frozen=True)
class Contract:
    """How many `cases` were asked, and what the answers to some of them `broke`, with a command that asks so."""

    cases: int
    broke: tuple[str, ...]


def contract(settings: Settings, examples: int, *, seed: int = 0, operations: Sequence[str] = ()) -> Contract:
    """Asks for the edge cases of every operation over a gallery, and for so many drawn ones of each.

    Given ids of `operations`, only for those.

    Every check of schemathesis: no server error, no undocumented status, media type or header, answers as their schema
    says, right requests accepted and wrong ones refused, nothing without the token.
    """
    unlimited = dataclasses.replace(Limits(), wrong_tokens_a_minute=10**9)
    app = make_app(Service(dataclasses.replace(settings, token=_TOKEN, hosts=(asgi.HOST,), limits=unlimited)))
    told = {"Authorization": f"Bearer {_TOKEN}"}
    accepted = {"expected-statuses": ["2xx", "3xx", "401", "403", "404", "409", "413", "415", "422"]}
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "headers": told,
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
                # Any bytes are a file; one that is no photo is told beside the others.
                {
                    "include-operation-id": ["detect", "embed"],
                    "checks": {"negative_data_rejection": {"enabled": False}},
                },
            ],
        }
    )
    schema = schemathesis.openapi.from_asgi(DOCUMENT, app, config=config, headers=told)
    cases, broke = 0, []
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            cases += len(event.recorder.interactions)
            broke += [
                f"{event.recorder.label}: {check.failure_info.failure.message}\n{check.failure_info.code_sample}"
                for checks in event.recorder.checks.values()
                for check in checks
                if check.status is Status.FAILURE and check.failure_info is not None
            ]
        elif isinstance(event, events.NonFatalError):
            broke.append(f"{event.label}: {event.value}")
        elif isinstance(event, events.FatalError):
            broke.append(str(event.exception))
    asgi.shutdown_lifespans()
    return Contract(cases, tuple(broke))


def _drawn_gallery(root: Path, model: Path) -> Path:
    """Eight drawn cats, three photos each, grouped."""
    photos = [
        save_photo(SyntheticPhoto("cats", identity, number, size_px=64).draw(), root / f"{identity}-{number}.png")
        for identity in range(8)
        for number in range(3)
    ]
    embedder = Embedder(model)
    with Gallery.create(root / "album", Space.from_metadata(embedder.metadata)) as gallery:
        enroll(gallery, embedder, photos)
        cluster(gallery)
    return root / "album"
