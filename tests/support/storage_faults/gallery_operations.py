"""Operations on a gallery, in WORK/disk/gallery; its photos are in WORK/photos."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collection.crash_runs import ReportingGallery, UninterruptedRun, problems_after_kill
from collection.crash_scenarios import (
    SCENARIOS,
    Scenario,
    comparable_contents,
    contents,
    draw_photos,
    embedder,
)

from familiar.core.errors import BadGallery
from familiar.gallery.database.connection import DATABASE, GalleryDatabase, Space
from familiar.gallery.editing.undo_log import decisions, undo
from familiar.gallery.integrity.check import check
from familiar.gallery.transfer.import_export import export_csv, import_csv
from support.storage_faults.recording import Acknowledge


def _undo(gallery: GalleryDatabase, _: Path) -> None:
    for _ in range(len(decisions(gallery)) - 8):
        undo(gallery)


def _prepare_import(folder: Path, photos: Path) -> None:
    SCENARIOS["merge"].prepare(folder, photos)
    with GalleryDatabase.open(folder) as gallery:
        export_csv(gallery, photos.with_name("labels.csv"))


def _import(gallery: GalleryDatabase, photos: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(photos.with_name("labels.csv").read_text())))
    for name in ("Tom", "Mia"):
        table = photos.with_name(f"{name}.csv")
        chosen = [row | {"name": name} for row in rows if Path(row["path"]).name[:2] == ("01" if name == "Tom" else "02")]
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(chosen)
        import_csv(gallery, table)


SCENARIOS_HERE = SCENARIOS | {
    "undo": Scenario(SCENARIOS["merge"].prepare, _undo, ()),
    "import": Scenario(_prepare_import, _import, ()),
}


@dataclass(frozen=True)
class GalleryTask:
    """A task of benchmarks/collection/crash_scenarios.py, or one of those above."""

    name: str

    def prepare(self, work: Path) -> None:
        draw_photos(work / "photos")
        SCENARIOS_HERE[self.name].prepare(work / "disk" / "gallery", work / "photos")

    def run(self, work: Path, acknowledge: Acknowledge) -> UninterruptedRun:
        states = {}
        with GalleryDatabase.open(work / "disk" / "gallery") as opened:
            states[opened.revision] = contents(opened)

            def report(message: str) -> None:
                if message.isdecimal():
                    acknowledge(message)
                    states[int(message)] = contents(opened)

            SCENARIOS_HERE[self.name].run(ReportingGallery(opened, report), work / "photos")
        return UninterruptedRun(0.0, states)

    def problems(self, work: Path, acknowledged: Sequence[str], reference: UninterruptedRun) -> list[str]:
        scenario = SCENARIOS_HERE[self.name]
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            revision = max(map(int, acknowledged), default=0)
            problems = problems_after_kill(scenario, gallery, reference, revision)
            problems += check(gallery).problems
            scenario.run(gallery, work / "photos")
            last = reference.contents[max(reference.contents)]
            if comparable_contents(contents(gallery)) != comparable_contents(last):
                problems.append("the repeated task ended in a different state")
        return problems
