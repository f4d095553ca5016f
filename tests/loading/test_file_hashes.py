import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from familiar.loading import file_hashes
from familiar.loading.file_hashes import content_hashes


@pytest.fixture(autouse=True)
def no_min_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store hashes of files at once, so that tests need not wait for seconds."""
    monkeypatch.setattr(file_hashes, "_MIN_AGE_NS", 0)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects the names of the files that are read."""
    seen: list[str] = []
    sha256 = file_hashes._sha256

    def read_and_record(path: Path) -> str | None:
        seen.append(path.name)
        return sha256(path)

    monkeypatch.setattr(file_hashes, "_sha256", read_and_record)
    return seen


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "contents.sqlite"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("a", "b\n", "Käter 🐈", os.fsdecode(b"\xff\xfe"))]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 9)
    return paths


def expected(paths: list[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def test_hashes_equal_sha256_in_input_order(files: list[Path]) -> None:
    assert content_hashes(files) == expected(files)
    assert content_hashes(files[::-1]) == expected(files)[::-1]
    assert content_hashes([]) == []
    empty = files[0].with_name("empty")
    empty.touch()
    assert content_hashes([empty]) == ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]


def test_an_unchanged_file_is_not_read_again(files: list[Path], database: Path, hashed: list[str]) -> None:
    assert content_hashes(files, database) == expected(files)
    assert sorted(hashed) == sorted(path.name for path in files)
    hashed.clear()
    assert content_hashes(files[1:], database) == expected(files)[1:]
    assert not hashed


def test_without_a_database_every_file_is_read(files: list[Path], hashed: list[str]) -> None:
    for _ in range(2):
        content_hashes(files)
    assert len(hashed) == 2 * len(files)


def test_relative_and_absolute_paths_share_one_entry(
    files: list[Path], database: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content_hashes(files, database)
    hashed.clear()
    monkeypatch.chdir(files[0].parent)
    assert content_hashes([Path(path.name) for path in files], database) == expected(files)
    assert not hashed


def write_in_place(path: Path) -> None:
    path.write_bytes(b"x" * 9)


def write_new_and_rename(path: Path) -> None:
    path.with_name("new").write_bytes(b"x" * 9)
    path.with_name("new").rename(path)


@pytest.mark.parametrize("keep_time", [False, True])
@pytest.mark.parametrize("change", [write_in_place, write_new_and_rename])
def test_a_changed_file_of_the_same_size_is_read_again(
    files: list[Path], database: Path, change: Callable[[Path], None], keep_time: bool
) -> None:
    content_hashes(files, database)
    before = files[0].stat()
    time.sleep(0.02)  # a tick of the file system's clock
    change(files[0])
    if keep_time:
        os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert content_hashes(files, database) == expected(files)


def test_a_file_that_just_changed_is_not_stored(
    files: list[Path], database: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change again within the same tick of the clock."""
    monkeypatch.setattr(file_hashes, "_MIN_AGE_NS", 3600 * 10**9)
    for _ in range(2):
        assert content_hashes(files, database) == expected(files)
    assert len(hashed) == 2 * len(files)


def test_file_with_future_time_is_not_stored(files: list[Path], database: Path, hashed: list[str]) -> None:
    """Its time would hide a later change."""
    os.utime(files[0], (4e9, 4e9))
    for _ in range(2):
        assert content_hashes(files[:1], database) == expected(files[:1])
    assert len(hashed) == 2


def test_unreadable_path_has_no_hash(files: list[Path], database: Path, tmp_path: Path) -> None:
    unreadable = [tmp_path / name for name in ("gone", "folder", "pipe", "link")]
    unreadable[1].mkdir()
    os.mkfifo(unreadable[2])
    unreadable[3].symlink_to("nowhere")
    for database_or_none in (None, database, database):
        assert content_hashes([*unreadable, files[0]], database_or_none) == [*[None] * 4, *expected(files[:1])]
    unreadable[0].write_bytes(b"here now")
    assert content_hashes(unreadable[:1], database) == expected(unreadable[:1])


def test_deleted_file_has_no_hash(files: list[Path], database: Path) -> None:
    content_hashes(files, database)
    files[0].unlink()
    assert content_hashes(files, database)[0] is None


def garbage(database: Path) -> None:
    database.write_bytes(b"no connection" * 1000)


def half(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 2)


def overwritten(database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[100:] = b"\xa5" * (len(content) - 100)
    database.write_bytes(content)


def emptied(database: Path) -> None:
    database.write_bytes(b"")


@pytest.mark.parametrize("spoil", [garbage, half, overwritten, emptied])
def test_damaged_database_is_rebuilt(
    files: list[Path], database: Path, hashed: list[str], spoil: Callable[[Path], None]
) -> None:
    content_hashes(files, database)
    spoil(database)
    for _ in range(2):
        assert content_hashes(files, database) == expected(files)
    hashed.clear()
    assert content_hashes(files, database) == expected(files)
    assert not hashed, "hashes must be stored again"


def test_database_with_other_schema_is_not_changed(files: list[Path], database: Path) -> None:
    with closing(apsw.Connection(str(database))) as connection, connection:
        connection.execute("CREATE TABLE contents (something TEXT)")
        connection.execute("INSERT INTO contents VALUES ('else')")
    assert content_hashes(files, database) == expected(files)
    with closing(apsw.Connection(str(database))) as connection:
        assert connection.execute("SELECT * FROM contents").fetchall() == [("else",)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_hashes, "_BUSY_MS", 0)


@pytest.fixture(params=["EXCLUSIVE", "IMMEDIATE"])
def locked(database: Path, files: list[Path], request: pytest.FixtureRequest) -> Iterator[None]:
    """Another process is writing."""
    content_hashes(files[:2], database)
    with closing(apsw.Connection(str(database))) as connection:
        connection.execute(f"BEGIN {request.param}")
        yield


@pytest.mark.usefixtures("impatient", "locked")
def test_locked_database_does_not_change_hashes(files: list[Path], database: Path) -> None:
    assert content_hashes(files, database) == expected(files)


def test_database_in_a_folder_whose_name_is_not_utf_8(files: list[Path], tmp_path: Path, hashed: list[str]) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9 #1?")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("file names are UTF-8 here")
    for _ in range(2):
        assert content_hashes(files, folder / "contents.sqlite") == expected(files)
    assert len(hashed) == len(files)


@pytest.mark.parametrize("name", ["folder", "missing/contents.sqlite", "a/contents.sqlite"])
def test_uncreatable_database_does_not_change_hashes(files: list[Path], tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    assert content_hashes(files, tmp_path / name) == expected(files)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("spoil", [None, garbage])
def test_read_only_database_is_unchanged_and_hashes_are_correct(
    shared_folder: Path, spoil: Callable[[Path], None] | None
) -> None:
    files = [shared_folder / "a", shared_folder / "b"]
    for path in files:
        path.write_bytes(path.name.encode())
    database = shared_folder / "contents.sqlite"
    content_hashes(files[:1], database)
    if spoil:
        spoil(database)
    before, expected_hashes = database.read_bytes(), expected(files)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            code = int(content_hashes(files, database) != expected_hashes)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert database.read_bytes() == before


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["write", "replace", "remove", "touch", "ask"]), st.integers(0, 3)),
    max_size=12,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_hashes_are_current_after_any_file_changes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    files = [folder / str(number) for number in range(3)]
    for number, what, byte in [*steps, (0, "ask", 0)]:
        path, content = files[number], bytes([byte]) * 5
        time.sleep(0.005)  # more than a tick of the file system's clock
        if what == "write":
            path.write_bytes(content)
        elif what == "replace":
            (folder / "new").write_bytes(content)
            (folder / "new").replace(path)
        elif what == "remove":
            path.unlink(missing_ok=True)
        elif what == "touch" and path.exists():
            os.utime(path, (1e9 + byte, 1e9 + byte))
        else:
            hashes = content_hashes(files, folder / "hashes.sqlite")
            assert hashes == [expected([path])[0] if path.exists() else None for path in files]
