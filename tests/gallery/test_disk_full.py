"""A full disk or one that fails raises a clear error and loses nothing; the work succeeds when that is over."""

import contextlib
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from collection.crash_scenarios import SCENARIOS, comparable_contents, contents, violated_invariants

from familiar.core.errors import CannotWrite
from familiar.gallery.edits.forget import forget_identity
from familiar.gallery.store.connection import DATABASE, translate_errors
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.backup import backup, restore
from familiar.gallery.transfer.repair import repair
from support.damaged_gallery import damage_table


@contextlib.contextmanager
def limited_file_size(size_bytes: int) -> Iterator[None]:
    """Make the system refuse writes beyond a file size (EFBIG), as at the end of a quota."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("free_kb", [2, 60])
@pytest.mark.parametrize("task", [task for task in SCENARIOS if task != "forget"])
def test_full_disk_raises_cannot_write_and_loses_nothing(task: str, free_kb: int, drawings: Path, tmp_path: Path):
    run, folder, unlimited = SCENARIOS[task].run, tmp_path / "limited", tmp_path / "unlimited"
    SCENARIOS[task].prepare(folder, drawings)
    shutil.copytree(folder, unlimited)
    with Store.open(unlimited) as gallery:
        run(gallery, drawings)
        expected = comparable_contents(contents(gallery))
    with Store.open(folder) as gallery:
        with limited_file_size(free_kb * 1024), pytest.raises(CannotWrite, match="disk is full"):
            run(gallery, drawings)
        assert violated_invariants(SCENARIOS[task], gallery) == []  # without reopening it
        seen = contents(gallery)
    with Store.open(folder) as gallery:
        assert contents(gallery) == seen
        run(gallery, drawings)
        assert comparable_contents(contents(gallery)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("task", ["enroll", "cluster"])
def test_database_page_limit_is_reported_as_a_full_disk(task: str, drawings: Path, tmp_path: Path):
    # SQLITE_FULL; in the test above it is a failing write call.
    run = SCENARIOS[task].run
    SCENARIOS[task].prepare(tmp_path / "gallery", drawings)
    with Store.open(tmp_path / "gallery") as gallery:
        gallery._connection.set("max_page_count", gallery._connection.get("page_count") + 3)
        with pytest.raises(CannotWrite, match="disk is full"):
            run(gallery, drawings)
        assert violated_invariants(SCENARIOS[task], gallery) == []
        gallery._connection.set("max_page_count", 1_000_000)
        run(gallery, drawings)
        assert violated_invariants(SCENARIOS[task], gallery) == []


def test_erasure_without_disk_space_completes_on_next_open(drawings: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    SCENARIOS["forget"].prepare(folder, drawings)
    with Store.open(folder) as gallery:
        forgotten_embeddings = [row[-1] for row in contents(gallery)["faces"] if row[0] <= 5]
        gallery._compact()
        with limited_file_size(120 * 1024):  # enough to forget, too little to rewrite the whole file
            forgotten = forget_identity(gallery, 1)
        assert (forgotten.faces, forgotten.erased) == (5, False)
        assert len(contents(gallery)["faces"]) == 115
    Store.open(folder).close()
    on_disk = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not any(embedding in on_disk for embedding in forgotten_embeddings)


def test_copy_that_fails_on_a_full_disk_keeps_nobody_from_writing(drawings: Path, tmp_path: Path, caplog):
    folder = tmp_path / "gallery"
    SCENARIOS["merge"].prepare(folder, drawings)
    shutil.rmtree(folder / "backups", ignore_errors=True)
    with Store.open(folder) as gallery, limited_file_size(100 * 1024), gallery.write() as repository:
        repository.connection.run("UPDATE identities SET name = NULL WHERE id = 1")
    assert "the automatic copy failed" in caplog.text
    assert [path.name for path in (folder / "backups").iterdir()] == [".lock"]


@pytest.mark.parametrize("task", ["backup", "restore", "repair"])
def test_backup_restore_and_repair_without_disk_space_change_nothing(task: str, drawings: Path, tmp_path: Path):
    folder, file = tmp_path / "gallery", tmp_path / "first.zip"
    SCENARIOS["merge"].prepare(folder, drawings)
    with Store.open(folder) as gallery:
        backup(gallery, file)
    if task == "repair":
        damage_table(folder, "changes")
    before, size = (folder / DATABASE).read_bytes(), (folder / DATABASE).stat().st_size

    def names() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if not path.name.endswith((".lock", "-wal", "-shm"))}

    names_before = names()

    def run() -> None:
        if task == "backup":
            with Store.open(folder) as gallery:
                backup(gallery, tmp_path / "second.zip")
        elif task == "restore":
            restore(folder, file)
        else:
            repair(folder)

    for room in (30 * 1024, size - 30 * 1024):
        with limited_file_size(room), pytest.raises(CannotWrite):
            run()
        assert names() == names_before
        assert (folder / DATABASE).read_bytes() == before
    run()


def test_failing_reads_are_told_from_damage(drawings: Path, tmp_path: Path):
    """The disk is at fault, and what is on it may be intact: nobody is sent to a repair."""
    SCENARIOS["merge"].prepare(tmp_path / "gallery", drawings)

    class FailingDisk(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("failing", "")

        def xOpen(self, name, flags):  # noqa: N802 - apsw's name
            return FailingFile(name, flags)

    class FailingFile(apsw.VFSFile):
        fails = False

        def __init__(self, name, flags) -> None:
            super().__init__("", name, flags)

        def xRead(self, amount, offset):  # noqa: N802
            if FailingFile.fails:
                raise apsw.IOError("disk I/O error")
            return super().xRead(amount, offset)

    disk = FailingDisk()
    with contextlib.closing(apsw.Connection(str(tmp_path / "gallery" / DATABASE), vfs="failing")) as connection:
        FailingFile.fails = True
        with pytest.raises(CannotWrite, match="disk is full or failing"), translate_errors(tmp_path / "gallery"):
            connection.execute("SELECT count(*) FROM faces")
    disk.unregister()
