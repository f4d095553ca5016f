import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from familiar.loading import file_hashes
from familiar.loading.file_hashes import content_hashes


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once, so that tests need not wait for seconds."""
    monkeypatch.setattr(file_hashes, "_SETTLED_NS", 0)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read, from now on."""
    seen: list[str] = []
    sha256 = file_hashes._sha256

    def read_and_tell(path: Path) -> str | None:
        seen.append(path.name)
        return sha256(path)

    monkeypatch.setattr(file_hashes, "_sha256", read_and_tell)
    return seen


@pytest.fixture
def memory(tmp_path: Path) -> Path:
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


def test_an_unchanged_file_is_not_read_again(files: list[Path], memory: Path, hashed: list[str]) -> None:
    assert content_hashes(files, memory) == expected(files)
    assert sorted(hashed) == sorted(path.name for path in files)
    hashed.clear()
    assert content_hashes(files[1:], memory) == expected(files)[1:]
    assert not hashed


def test_without_a_memory_every_file_is_read(files: list[Path], hashed: list[str]) -> None:
    for _ in range(2):
        content_hashes(files)
    assert len(hashed) == 2 * len(files)


def test_relative_and_absolute_paths_share_one_entry(
    files: list[Path], memory: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content_hashes(files, memory)
    hashed.clear()
    monkeypatch.chdir(files[0].parent)
    assert content_hashes([Path(path.name) for path in files], memory) == expected(files)
    assert not hashed


def write_in_place(path: Path) -> None:
    path.write_bytes(b"x" * 9)


def write_beside_and_rename(path: Path) -> None:
    path.with_name("new").write_bytes(b"x" * 9)
    path.with_name("new").rename(path)


@pytest.mark.parametrize("keep_time", [False, True])
@pytest.mark.parametrize("change", [write_in_place, write_beside_and_rename])
def test_a_changed_file_of_the_same_size_is_read_again(
    files: list[Path], memory: Path, change: Callable[[Path], None], keep_time: bool
) -> None:
    content_hashes(files, memory)
    before = files[0].stat()
    time.sleep(0.02)  # a tick of the file system's clock
    change(files[0])
    if keep_time:
        os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert content_hashes(files, memory) == expected(files)


def test_a_file_that_just_changed_is_not_remembered(
    files: list[Path], memory: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change once more within the same tick of the clock."""
    monkeypatch.setattr(file_hashes, "_SETTLED_NS", 3600 * 10**9)
    for _ in range(2):
        assert content_hashes(files, memory) == expected(files)
    assert len(hashed) == 2 * len(files)


def test_file_with_future_time_is_not_remembered(files: list[Path], memory: Path, hashed: list[str]) -> None:
    """Its time would hide when it really changes."""
    os.utime(files[0], (4e9, 4e9))
    for _ in range(2):
        assert content_hashes(files[:1], memory) == expected(files[:1])
    assert len(hashed) == 2


def test_unreadable_path_has_no_hash(files: list[Path], memory: Path, tmp_path: Path) -> None:
    odd = [tmp_path / name for name in ("gone", "folder", "pipe", "link")]
    odd[1].mkdir()
    os.mkfifo(odd[2])
    odd[3].symlink_to("nowhere")
    for place in (None, memory, memory):
        assert content_hashes([*odd, files[0]], place) == [*[None] * 4, *expected(files[:1])]
    odd[0].write_bytes(b"here now")
    assert content_hashes(odd[:1], memory) == expected(odd[:1])


def test_deleted_file_has_no_hash(files: list[Path], memory: Path) -> None:
    content_hashes(files, memory)
    files[0].unlink()
    assert content_hashes(files, memory)[0] is None


def garbage(memory: Path) -> None:
    memory.write_bytes(b"no database" * 1000)


def half(memory: Path) -> None:
    os.truncate(memory, memory.stat().st_size // 2)


def overwritten(memory: Path) -> None:
    content = bytearray(memory.read_bytes())
    content[100:] = b"\xa5" * (len(content) - 100)
    memory.write_bytes(content)


def emptied(memory: Path) -> None:
    memory.write_bytes(b"")


@pytest.mark.parametrize("spoil", [garbage, half, overwritten, emptied])
def test_damaged_memory_is_rebuilt(
    files: list[Path], memory: Path, hashed: list[str], spoil: Callable[[Path], None]
) -> None:
    content_hashes(files, memory)
    spoil(memory)
    for _ in range(2):
        assert content_hashes(files, memory) == expected(files)
    hashed.clear()
    assert content_hashes(files, memory) == expected(files)
    assert not hashed, "it remembers again"


def test_memory_with_other_schema_is_not_changed(files: list[Path], memory: Path) -> None:
    with closing(sqlite3.connect(memory)) as database, database:
        database.execute("CREATE TABLE contents (something TEXT)")
        database.execute("INSERT INTO contents VALUES ('else')")
    assert content_hashes(files, memory) == expected(files)
    with closing(sqlite3.connect(memory)) as database:
        assert database.execute("SELECT * FROM contents").fetchall() == [("else",)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **_: connect(path, timeout=0))


@pytest.fixture(params=["EXCLUSIVE", "IMMEDIATE"])
def locked(memory: Path, files: list[Path], request: pytest.FixtureRequest) -> Iterator[None]:
    """Another process is in the middle of writing."""
    content_hashes(files[:2], memory)
    with closing(sqlite3.connect(memory)) as database:
        database.execute(f"BEGIN {request.param}")
        yield


@pytest.mark.usefixtures("impatient", "locked")
def test_locked_memory_does_not_change_hashes(files: list[Path], memory: Path) -> None:
    assert content_hashes(files, memory) == expected(files)


@pytest.mark.parametrize("place", ["folder", "missing/contents.sqlite", "a/contents.sqlite"])
def test_uncreatable_memory_does_not_change_hashes(files: list[Path], tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    assert content_hashes(files, tmp_path / place) == expected(files)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("spoil", [None, garbage])
def test_read_only_memory_is_unchanged_and_hashes_are_correct(
    theirs: Path, spoil: Callable[[Path], None] | None
) -> None:
    files = [theirs / "a", theirs / "b"]
    for path in files:
        path.write_bytes(path.name.encode())
    memory = theirs / "contents.sqlite"
    content_hashes(files[:1], memory)
    if spoil:
        spoil(memory)
    before, wanted = memory.read_bytes(), expected(files)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            code = int(content_hashes(files, memory) != wanted)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert memory.read_bytes() == before


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
            found = content_hashes(files, folder / "memory")
            assert found == [expected([path])[0] if path.exists() else None for path in files]
