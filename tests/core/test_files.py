import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from familiar.core.files import write_atomically


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    """An open one, whatever the shell's."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\r\n", b"x" * 3_000_000], ids=["empty", "binary", "large"]
)
def test_the_content_is_there_and_nothing_else(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, content)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"older and longer")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_name_without_a_folder_lies_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically(Path("run.json"), b"here")
    assert (tmp_path / "run.json").read_bytes() == b"here"


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["full", "interrupted"])
@pytest.mark.parametrize("before", [b"old", None])
def test_a_failed_write_leaves_what_was_there(
    step: str, error: BaseException, before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    if before is not None:
        path.write_bytes(before)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(type(error)):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert [found.read_bytes() for found in tmp_path.iterdir()] == ([] if before is None else [before])


def test_the_content_is_on_the_disk_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"old")
    seen: list[tuple[bytes, bytes]] = []

    def fsync(descriptor: int) -> None:
        (temporary,) = (found for found in tmp_path.iterdir() if found != path)
        assert os.path.samestat(os.fstat(descriptor), temporary.stat())
        seen.append((path.read_bytes(), temporary.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, b"new")
    assert seen == [(b"old", b"new")]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "run.json", b"")


def test_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(OSError, match="run"):
        write_atomically(tmp_path / "run", b"")
    assert [found.name for found in tmp_path.iterdir()] == ["run"]


@pytest.mark.usefixtures("umask")
@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize(("mask", "wanted"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_are_what_the_user_gives_new_files(mask: int, wanted: int, tmp_path: Path) -> None:
    os.umask(mask)
    path = tmp_path / "run.json"
    write_atomically(path, b"")
    assert mode(path) == wanted
