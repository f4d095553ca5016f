"""Operations on a gallery, in WORK/disk/gallery; its photos are in WORK/photos."""

import contextlib
import io
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from collection.crash_runs import ReportingGallery, UninterruptedRun, problems_after_kill
from collection.crash_scenarios import (
    FACES,
    SCENARIOS,
    WIDTH,
    Scenario,
    comparable_contents,
    contents,
    draw_individuals,
    draw_photos,
    embedder,
    violated_invariants,
)
from PIL import Image

from familiar.cli.main import familiar
from familiar.core.errors import BadGallery
from familiar.core.files import absolute_path, content_sha256
from familiar.gallery.clustering.assignments import UNASSIGNED, load_assignments
from familiar.gallery.database.connection import DATABASE, UPLOADED_PHOTOS, GalleryDatabase, Space
from familiar.gallery.editing.corrections import IdentityFaces, assign
from familiar.gallery.editing.forget import forget_photos
from familiar.gallery.editing.undo_log import decisions, undo
from familiar.gallery.enrollment.enroll import enroll, enroll_embeddings
from familiar.gallery.integrity.backup import backup, restore
from familiar.gallery.integrity.check import check
from familiar.gallery.integrity.repair import repair
from familiar.gallery.transfer.import_export import import_csv
from familiar.gallery.transfer.xmp_export import export_xmp
from familiar.photos.decoding import find_photos, load_photo
from familiar.photos.metadata.jpeg import read_packet
from support.color_album import draw_album
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.storage_faults.recording import Acknowledge, Operation

PAGE_BYTES = 4096


def _undo(gallery: GalleryDatabase, _: Path) -> None:
    for _ in range(len(decisions(gallery)) - 8):
        undo(gallery)


def _prepare_import(folder: Path, photos: Path) -> None:
    SCENARIOS["cluster"].prepare(folder, photos)  # an empty gallery
    with GalleryDatabase.open(folder) as gallery:
        names = [f"{number} {face}" for number in range(8) for face in range(FACES)]
        enroll_embeddings(gallery, draw_individuals()[:8].reshape(-1, WIDTH), names, "old")
    for number in range(4):
        rows = "".join(f"{absolute_path(f'{number} {face}')},Tom {number}\n" for face in range(FACES))
        photos.with_name(f"{number}.csv").write_text(f"path,name\n{rows}")


def _import(gallery: GalleryDatabase, photos: Path) -> None:
    for number in range(4):
        import_csv(gallery, photos.with_name(f"{number}.csv"))


GALLERY_TASKS = SCENARIOS | {
    "undo": Scenario(SCENARIOS["merge"].prepare, _undo, ()),
    "import": Scenario(_prepare_import, _import, ()),
}


@dataclass(frozen=True)
class GalleryTask:
    """A task of benchmarks/collection/crash_scenarios.py, or one of those above.

    Attributes:
        name: of the task.
        by_revision: whether each revision has the contents that it has in an undisturbed run. An erasure that fails,
            and is completed later, moves the later revisions by one.
    """

    name: str
    by_revision: bool = True

    def prepare(self, work: Path) -> None:
        draw_photos(work / "photos")
        GALLERY_TASKS[self.name].prepare(work / "disk" / "gallery", work / "photos")

    def run(self, work: Path, acknowledge: Acknowledge) -> UninterruptedRun:
        states = {}
        with GalleryDatabase.open(work / "disk" / "gallery") as opened:
            states[opened.revision] = contents(opened)

            def report(message: str) -> None:
                if message.isdecimal():
                    acknowledge(message)
                    states[int(message)] = contents(opened)

            GALLERY_TASKS[self.name].run(ReportingGallery(opened, report), work / "photos")
        return UninterruptedRun(0.0, states)

    def problems(self, work: Path, acknowledged: Sequence[str], reference: UninterruptedRun) -> list[str]:
        scenario = GALLERY_TASKS[self.name]
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            revision = max(map(int, acknowledged), default=0)
            if self.by_revision:
                problems = problems_after_kill(scenario, gallery, reference, revision)
            else:
                problems = violated_invariants(scenario, gallery)
                seen = comparable_contents(contents(gallery))
                if all(seen != comparable_contents(state) for state in reference.contents.values()):
                    problems.append("it is in no state of an undisturbed run")
            problems += check(gallery).problems
            scenario.run(gallery, work / "photos")
            last = reference.contents[max(reference.contents)]
            if comparable_contents(contents(gallery)) != comparable_contents(last):
                problems.append("the repeated task ended in a different state")
        return problems


@dataclass(frozen=True)
class CreateGallery:
    """A new gallery in a new folder."""

    def prepare(self, work: Path) -> None:
        pass

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        GalleryDatabase.create(work / "disk" / "albums" / "gallery", Space.from_metadata(embedder().metadata)).close()
        acknowledge("created")

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        folder = work / "disk" / "albums" / "gallery"
        try:
            GalleryDatabase.open(folder).close()
        except BadGallery as error:
            if acknowledged:
                return [f"the gallery is not there: {error}"]
            self.run(work, lambda _: None)
        with GalleryDatabase.open(folder) as gallery:
            problems = list(check(gallery).problems)
        names = {path.name for path in folder.iterdir()}
        return problems + [
            f"left behind: {name}" for name in names if not name.startswith(("gallery.", f".{DATABASE}."))
        ]


def _enroll_uploads(gallery: GalleryDatabase, photos: Sequence[Path]) -> None:
    """Enroll copies of photos in the gallery's folder."""
    stored: list[Path] = []
    for path in photos:
        name = content_sha256(path).hex()
        stored.append(gallery.folder / UPLOADED_PHOTOS / name[:2] / f"{name}.png")
        stored[-1].parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, stored[-1])
    enroll(gallery, embedder(), stored)


@dataclass(frozen=True)
class ForgetUploads:
    """Forgetting photos whose files the gallery itself keeps."""

    def prepare(self, work: Path) -> None:
        draw_photos(work / "photos")
        with GalleryDatabase.create(work / "disk" / "gallery", Space.from_metadata(embedder().metadata)) as gallery:
            _enroll_uploads(gallery, sorted((work / "photos").iterdir())[:6])

    def run(self, work: Path, acknowledge: Acknowledge) -> list[str]:
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            with gallery.reading() as repository:
                paths = [path for path, _ in repository.photos.paths_and_sizes()]
            for path in paths[::2]:
                forget_photos(gallery, [Path(path)])
                acknowledge(path)
        return paths

    def problems(self, work: Path, acknowledged: Sequence[str], reference: list[str]) -> list[str]:
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            problems = list(check(gallery).problems)
            with gallery.reading() as repository:
                known = {path for path, _ in repository.photos.paths_and_sizes()}
            problems += [f"{path} is still known" for path in acknowledged if path in known]
            problems += [f"{path} is still there" for path in acknowledged if Path(path).exists()]
            problems += [f"{path} is lost" for path in reference[1::2] if path not in known or not Path(path).exists()]
            forget_photos(gallery, [Path(path) for path in reference[::2] if path in known])
        return problems + [f"{path} cannot be forgotten" for path in reference[::2] if Path(path).exists()]


@dataclass(frozen=True)
class Commands:
    """A gallery made and changed at the command line; what is printed is a promise."""

    def prepare(self, work: Path) -> None:
        write_mean_color_bundle(work / "colors.onnx", CALIBRATED)
        draw_album(work / "photos", red=2, green=2)

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        folder = str(work / "disk" / "gallery")
        for arguments in (
            ("enroll", folder, str(work / "photos"), "--model", str(work / "colors.onnx"), "--detector", "none"),
            ("cluster", folder),
            ("name", folder, "#1", "Rosa"),
            ("merge", folder, "#1", "#2"),
        ):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                familiar.main(["gallery", *arguments], standalone_mode=False)
            assert output.getvalue()
            acknowledge(arguments[0])

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        folder = work / "disk" / "gallery"
        if not acknowledged and not (folder / DATABASE).exists():
            self.run(work, lambda _: None)
        with GalleryDatabase.open(folder) as gallery:
            problems = list(check(gallery).problems)
            assignments = load_assignments(gallery)
            faces, expected_faces = len(gallery.faces().ids), 4 if acknowledged else 0
        if faces < expected_faces:
            problems.append(f"{faces} of {expected_faces} faces are there")
        if "cluster" in acknowledged and (assignments.identity == UNASSIGNED).any():
            problems.append("faces are not clustered")
        if {"name", "merge"} & {*acknowledged} and "Rosa" not in assignments.names.values():
            problems.append("a name is lost")
        return problems


@dataclass(frozen=True)
class WriteNames:
    """Names written into the user's own photos, and into sidecars of those that are no JPEGs."""

    def prepare(self, work: Path) -> None:
        photos, originals = work / "disk" / "photos", work / "originals"
        draw_photos(originals)
        for path in sorted(originals.iterdir())[4:]:
            path.unlink()
        for path in sorted(originals.iterdir())[:2]:
            Image.open(path).save(path.with_suffix(".jpg"))
            path.unlink()
        shutil.copytree(originals, photos)
        with GalleryDatabase.create(work / "disk" / "gallery", Space.from_metadata(embedder().metadata)) as gallery:
            enroll(gallery, embedder(), sorted(photos.iterdir()))
            assign(gallery, [IdentityFaces(f"Tom {face}", (face,)) for face in gallery.faces().ids.tolist()])

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            result = export_xmp(gallery, in_place=True)
        if not result.skipped and not result.not_in_place:
            acknowledge("written")

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        problems = ["a name is not there"] if acknowledged and not self._all_named(work) else []
        for path in (work / "originals").iterdir():
            original, photo = load_photo(path), load_photo(work / "disk" / "photos" / path.name)
            if not np.array_equal(original.rgb_u8, photo.rgb_u8):
                problems.append(f"{path.name} is another picture")
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            result = check(gallery)
            problems += [*result.problems, *result.missing]
            # A photo that was written before the cut, and the gallery after it, is known again by enrolling it.
            enroll(gallery, embedder(), find_photos([work / "disk" / "photos"]))
            problems += export_xmp(gallery, in_place=True).skipped
        return problems if self._all_named(work) else [*problems, "a name cannot be written again"]

    def _all_named(self, work: Path) -> bool:
        photos = work / "disk" / "photos"
        packets = [read_packet(path.read_bytes()) for path in photos.glob("*.jpg")]
        packets += [path.read_bytes() for path in photos.glob("*.xmp")]
        return sum(b"Tom " in (packet or b"") for packet in packets) == 4


@dataclass(frozen=True)
class Repair:
    """Repairing a gallery with a damaged page of an index; everything can be recovered."""

    def prepare(self, work: Path) -> None:
        SCENARIOS["merge"].prepare(work / "disk" / "gallery", work)
        path = work / "disk" / "gallery" / DATABASE
        with contextlib.closing(sqlite3.connect(path)) as connection:
            (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE type = 'index' LIMIT 1").fetchone()
        content = bytearray(path.read_bytes())
        content[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = bytes(PAGE_BYTES)
        path.write_bytes(content)

    def run(self, work: Path, acknowledge: Acknowledge) -> int:
        repair(work / "disk" / "gallery")
        acknowledge("repaired")
        return self._names(work)

    def _names(self, work: Path) -> int:
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            assert not check(gallery).problems
            return len(load_assignments(gallery).names)

    def problems(self, work: Path, acknowledged: Sequence[str], reference: int) -> list[str]:
        folder = work / "disk" / "gallery"
        problems: list[str] = []
        if acknowledged:
            if self._names(work) != reference:
                problems.append("names are lost")
        elif not (folder / DATABASE).exists():
            problems.append(f"there is no gallery, only {sorted(path.name for path in folder.iterdir())}")
        else:
            repair(folder)
            if self._names(work) != reference:
                problems.append("names are lost after repairing again")
        return problems


def _rows(gallery: GalleryDatabase) -> dict[str, object]:
    """Return all rows, but the one that has the gallery's uid and counts."""
    return {table: rows for table, rows in contents(gallery).items() if table != "gallery"}


@dataclass(frozen=True)
class Backup:
    """A backup of a gallery with uploaded photos, and what is restored from it."""

    def prepare(self, work: Path) -> None:
        ForgetUploads().prepare(work)

    def run(self, work: Path, acknowledge: Acknowledge) -> dict[str, object]:
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            backup(gallery, work / "disk" / "album.zip")
            acknowledge("backed up")
            return _rows(gallery)

    def problems(self, work: Path, acknowledged: Sequence[str], reference: dict[str, object]) -> list[str]:
        file, folder = work / "disk" / "album.zip", work / "disk" / "gallery"
        with GalleryDatabase.open(folder) as gallery:
            problems = list(check(gallery).problems)
        if acknowledged and not file.exists():
            problems.append("the backup is lost")
        if not file.exists():
            self.run(work, lambda _: None)
        # The gallery is lost, and restored where it was, so that all paths are the same.
        shutil.rmtree(folder)
        restore(file, folder)
        with GalleryDatabase.open(folder) as restored:
            result = check(restored)
            problems += [*result.problems, *result.missing]
            if _rows(restored) != reference:
                problems.append("the restored gallery has other rows")
        return problems


@dataclass(frozen=True)
class Restore:
    """Restoring a gallery that was changed since its backup, and has one more uploaded photo."""

    def prepare(self, work: Path) -> None:
        ForgetUploads().prepare(work)
        with GalleryDatabase.open(work / "disk" / "gallery") as gallery:
            backup(gallery, work / "album.zip")
            assign(gallery, [IdentityFaces(f"Tom {face}", (face,)) for face in gallery.faces().ids.tolist()])
            _enroll_uploads(gallery, sorted((work / "photos").iterdir())[6:7])

    def run(self, work: Path, acknowledge: Acknowledge) -> list[dict[str, object]]:
        folder = work / "disk" / "gallery"
        with GalleryDatabase.open(folder) as gallery:
            before = _rows(gallery)
        restore(work / "album.zip", folder)
        acknowledge("restored")
        with GalleryDatabase.open(folder) as gallery:
            return [before, _rows(gallery)]

    def problems(self, work: Path, acknowledged: Sequence[str], reference: list[dict[str, object]]) -> list[str]:
        folder = work / "disk" / "gallery"
        with GalleryDatabase.open(folder) as gallery:
            result = check(gallery)
            problems = [*result.problems, *result.missing]
            if _rows(gallery) not in (reference[1:] if acknowledged else reference):
                problems.append("the rows are those of neither gallery" if not acknowledged else "it is not restored")
        if len(list((folder / UPLOADED_PHOTOS).glob("*/*.png"))) != 7:
            problems.append("an uploaded photo is lost")
        restore(work / "album.zip", folder)
        with GalleryDatabase.open(folder) as gallery:
            if _rows(gallery) != reference[1]:
                problems.append("it cannot be restored again")
            with gallery.reading() as repository:
                path = next(path for path, _ in repository.photos.paths_and_sizes())
            if not forget_photos(gallery, [Path(path)]).erased:
                problems.append("a photo cannot be forgotten")
            problems += check(gallery).problems
        return problems + [f"left behind: {path}" for path in folder.glob("replaced-*/*")]


# On top of the tasks of `GALLERY_TASKS`.
OTHER_OPERATIONS: tuple[Operation, ...] = (
    CreateGallery(),
    Commands(),
    ForgetUploads(),
    WriteNames(),
    Backup(),
    Restore(),
    Repair(),
)
