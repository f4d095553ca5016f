"""The copy before the first write of a day: when it is made, which are kept, and what is erased from them."""

import contextlib
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path

import pytest

from familiar.core.errors import CannotWrite
from familiar.gallery.edits.corrections import split
from familiar.gallery.edits.forget import forget_identity, forget_photos
from familiar.gallery.store import automatic_copies
from familiar.gallery.store import store as store_module
from familiar.gallery.store.automatic_copies import copies
from familiar.gallery.store.connection import Connection, connect
from familiar.gallery.store.retention import Retention
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.backup import restore
from support.small_gallery import SPACE, draw_individuals, enroll_vectors

DAY = date(2024, 5, 1)  # a Wednesday


class Clock:
    """A day that a test chooses."""

    day = DAY

    def today(self) -> date:
        return self.day

    def now(self) -> datetime:
        return datetime.combine(self.day, time())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module, name in ((store_module, "date"), (automatic_copies, "date"), (automatic_copies, "datetime")):
        monkeypatch.setattr(module, name, clock)
    return clock


def write(gallery: Store) -> None:
    with gallery.write() as repository:
        repository.connection.run("INSERT INTO identities (name) VALUES (NULL)")


def days(folder: Path) -> list[str]:
    return [path.name[:10] for path in copies(folder)]


@pytest.fixture
def filled(gallery: Store, folder: Path) -> Iterator[Store]:
    enroll_vectors(gallery, draw_individuals([2, 1]))
    assert copies(folder) == [], "there was nothing to copy before"
    with Store.open(folder) as opened:
        yield opened


def test_first_write_of_a_day_makes_a_copy_of_what_was_before(filled: Store, folder: Path, clock: Clock):
    for _ in range(2):
        write(filled)
    with Store.open(folder) as another:
        write(another)
    (copy,) = copies(folder)
    automatic_copies.require_intact(copy)
    clock.day += timedelta(1)
    write(filled)
    assert days(folder) == ["2024-05-02", "2024-05-01"]
    restored = restore(folder)
    assert (restored.source, restored.faces) == (copies(folder)[0], 3)
    with filled.read() as repository:
        assert repository.connection.value("SELECT count(*) FROM identities") == 3


def test_last_days_and_weeks_are_kept(filled: Store, folder: Path, clock: Clock):
    for _ in range(30):
        write(filled)
        clock.day += timedelta(1)
    assert days(folder) == ["2024-05-30", "2024-05-29", "2024-05-28", "2024-05-26", "2024-05-19"]
    for retention, expected in ((Retention(1, 0), "2024-06-01"), (Retention(0, 0), "2024-06-01")):
        with filled.write() as repository:
            repository.settings.set_retention(retention)
        clock.day += timedelta(1)
        write(filled)
        assert days(folder) == [expected]


def test_clock_set_back_a_year_costs_no_copy_of_today(filled: Store, folder: Path, clock: Clock):
    for _ in range(3):
        write(filled)
        clock.day += timedelta(1)
    clock.day -= timedelta(366)
    write(filled)
    assert days(folder) == ["2024-05-03", "2024-05-02", "2024-05-01", "2023-05-04"]


def test_forgetting_erases_photos_and_names_from_every_copy(folder: Path):
    with Store.create(folder, SPACE) as gallery:
        embeddings = draw_individuals([2, 1])
        faces = enroll_vectors(gallery, embeddings)
        mia, path = split(gallery, faces[:2], "Mia-Secret").identity, folder.parent / "secret.jpg"
        with gallery.write() as repository:
            repository.connection.run("UPDATE photos SET path = ? WHERE id = 3", (bytes(path),))
            repository.connection.run("""UPDATE photos SET attributes = '{"people": ["Mia-Secret", "Tom"]}'""")
            repository.connection.run(
                "INSERT INTO events (happened_at, kind, body) VALUES ('', 'name', json_object('name', 'Mia-Secret'))"
            )
        copy = gallery.make_automatic_copy("cluster")
        (folder / "backups" / ".unfinished").write_bytes(b"Mia-Secret")  # by a killed process
        assert copy is not None
        assert restore(folder, copy).previous is not None
        (folder / "damaged-20240501-120000").mkdir()
        (folder / "damaged-20240501-120000" / "gallery.sqlite").write_bytes(b"Mia-Secret")
        assert len(copies(folder)) == 2
        gallery.faces()  # of the restored gallery
        unreadable = folder / "backups" / "2024-05-01T000000.sqlite"
        unreadable.write_bytes(b"garbled Mia-Secret")
        assert forget_identity(gallery, mia).erased
        assert forget_photos(gallery, [path]).erased
        assert len(copies(folder)) == 2
    secrets = (b"Mia-Secret", b"secret.jpg", *(row.astype("<f2").tobytes() for row in embeddings))
    for file in folder.rglob("*"):
        assert not (file.is_file() and any(secret in file.read_bytes() for secret in secrets)), file


def test_restore_is_refused_if_what_was_there_cannot_be_copied(filled: Store, folder: Path, monkeypatch):
    write(filled)
    monkeypatch.setattr(automatic_copies, "copy", lambda *_: None)
    with pytest.raises(CannotWrite, match="nothing was changed"):
        restore(folder)
    assert filled.revision == 2


def test_forgetting_waits_for_a_copy_that_another_process_makes(
    folder: Path, gallery: Store, monkeypatch: pytest.MonkeyPatch
):
    enroll_vectors(gallery, draw_individuals([2, 2]))
    copy_to_new_file = automatic_copies.copy_to_new_file
    erased = list[bool]()

    def forget_meanwhile(connection: Connection, path: Path) -> None:
        copy_to_new_file(connection, path)
        monkeypatch.setattr(automatic_copies, "_WAIT_SECONDS", 0)
        with Store.open(folder) as other:
            erased.append(forget_photos(other, [Path("photo 0.jpg")]).erased)

    with monkeypatch.context() as patch:
        patch.setattr(automatic_copies, "copy_to_new_file", forget_meanwhile)
        copy = gallery.make_automatic_copy("before-import")
    assert copy is not None
    automatic_copies.require_intact(copy)
    assert erased == [False]
    Store.open(folder).close()  # erases what is due
    with contextlib.closing(connect(copy)) as connection:
        assert connection.value("SELECT count(*) FROM faces") == 3
