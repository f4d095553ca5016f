import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from familiar.core.errors import CannotWrite
from familiar.core.files import (
    FileLock,
    draft_folder,
    erase_file,
    fsync_directory,
    make_folder,
    publish_folder,
    remove_unfinished_files,
    unfinished_files,
    write_atomically,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    """An open one, whatever the shell's."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("content", [b"", b"\x00\xff\r\n", b"x" * 3_000_000], ids=["empty", "binary", "large"])
def test_write_creates_only_the_file_with_its_content(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, content)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_write_replaces_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"older and longer")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_bare_file_name_is_written_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically(Path("run.json"), b"here")
    assert (tmp_path / "run.json").read_bytes() == b"here"


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["full", "interrupted"])
@pytest.mark.parametrize("before", [b"old", None])
def test_failed_write_keeps_existing_file(
    step: str, error: BaseException, before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    if before is not None:
        path.write_bytes(before)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(CannotWrite if isinstance(error, OSError) else KeyboardInterrupt):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if before is None else [before])


def test_content_is_synced_before_the_rename_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"old")
    seen: list[tuple[bool, bytes, list[bytes]]] = []

    def fsync(descriptor: int) -> None:
        others = [file for file in tmp_path.iterdir() if file != path]
        (synced,) = (each for each in [tmp_path, *others] if os.path.samestat(os.fstat(descriptor), each.stat()))
        seen.append((synced == tmp_path, path.read_bytes(), [file.read_bytes() for file in others]))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, b"new")
    assert seen == [(False, b"old", [b"new"]), (True, b"new", [])]


def test_file_systems_that_cannot_sync_folders_are_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EINVAL, "Invalid argument")))
    fsync_directory(tmp_path)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        fsync_directory(tmp_path)
    with pytest.raises(CannotWrite, match="Input/output error"):
        make_folder(tmp_path / "new")


def test_published_folder_replaces_an_empty_one_only(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for content in (b"first", b"second"):
        with draft_folder(tmp_path / "results") as draft:
            (draft / "file").write_bytes(content)
            if content == b"first":
                publish_folder(draft, tmp_path / "results")
            else:
                with pytest.raises(CannotWrite, match="results: cannot be written"):
                    publish_folder(draft, tmp_path / "results")
    assert [path.read_bytes() for path in (tmp_path / "results").iterdir()] == [b"first"]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/run.json", "No such file or directory"),
        ("file/run.json", "Not a directory"),
        ("folder", "Is a directory"),
        ("n" * 256, "File name too long"),
    ],
)
def test_write_error_names_file_and_reason(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(CannotWrite) as caught:
        write_atomically(tmp_path / name, b"")
    assert str(caught.value) == f"{tmp_path / name}: cannot be written ({reason})"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder"]


def test_rejects_empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotWrite, match="cannot be written"):
        write_atomically(Path(), b"")
    assert list(tmp_path.iterdir()) == []


def test_accepts_file_name_with_255_characters(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_atomically(path, b"here")
    assert path.read_bytes() == b"here"


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX's")
@pytest.mark.parametrize("before", [b"old", None])
def test_write_beyond_size_limit_keeps_existing_file(before: bytes | None, tmp_path: Path) -> None:
    import resource

    path = tmp_path / "state.pt"
    if before is not None:
        path.write_bytes(before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(CannotWrite, match=r"state\.pt: cannot be written \(File too large\)$"):
            write_atomically(path, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if before is None else [before])


@pytest.mark.usefixtures("umask")
@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize(("mask", "expected_mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_umask(mask: int, expected_mode: int, tmp_path: Path) -> None:
    os.umask(mask)
    path = tmp_path / "run.json"
    write_atomically(path, b"")
    assert mode(path) == expected_mode


def test_remove_unfinished_files_removes_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "kept"
    write_atomically(path, b"whole")
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        killed.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write_atomically(path, b"half")
    assert len(list(tmp_path.iterdir())) == 2
    remove_unfinished_files(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"whole"


def test_remove_unfinished_files_keeps_recent_temporary_files(tmp_path: Path):
    half, old, whole = (tmp_path / name for name in (".familiar.new", ".familiar.old", "whole"))
    for path in (half, old, whole):
        path.write_bytes(b"")
    for path in (old, whole):
        os.utime(path, (1e9, 1e9))
    remove_unfinished_files(tmp_path, older_than_seconds=3600)
    assert sorted(tmp_path.iterdir()) == [half, whole]


def test_erased_file_keeps_its_content_under_another_name(tmp_path: Path):
    """Of a link to the gallery that a killed repair has left, or of one that the user has made."""
    (tmp_path / "a").write_bytes(b"content")
    os.link(tmp_path / "a", tmp_path / "b")
    os.link(tmp_path / "a", tmp_path / "c")
    with (tmp_path / "a").open("rb") as still_open:
        with pytest.MonkeyPatch.context() as monkeypatch:  # closing it would release locks that this process has on it
            monkeypatch.setattr(Path, "open", Mock(side_effect=AssertionError("opened")))
            erase_file(tmp_path / "a")
            erase_file(tmp_path / "b")
        assert (tmp_path / "c").read_bytes() == b"content"
        erase_file(tmp_path / "c")
        assert still_open.read() == bytes(7)
    assert not list(tmp_path.iterdir())


def test_folders_are_no_unfinished_files(tmp_path: Path):
    (tmp_path / ".familiar.restore").mkdir()
    (tmp_path / ".familiar.1").write_bytes(b"x")
    assert unfinished_files(tmp_path) == [tmp_path / ".familiar.1"]
    remove_unfinished_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".familiar.restore"]


def test_erasing_a_symbolic_link_keeps_what_it_leads_to(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "link").symlink_to("a")
    erase_file(tmp_path / "link")
    assert (tmp_path / "a").read_bytes() == b"content"
    assert not (tmp_path / "link").is_symlink()


def test_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(CannotWrite, match=r"lock: cannot be locked \(No locks available\)"):
        lock.acquire()
    lock.close()
