"""Random changes of a folder, restarts and kills: the gallery equals the disk, and the events tell exactly how."""

import hashlib
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from familiar.gallery.store.photos import path_before_replacement
from support.color_album import RGB_U8, draw_photo
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.property_tests import expensive
from support.watched_folder import SETTLE_SECONDS, WatchedFolder, replay, unique

NAMES = ("a.png", "b.png", "c.png", "one/a.png", "one/two/b.png")
FOLDERS = ("one", "one/two", "three")
CONTENTS = 8  # the last one is no photo

name, folder = st.sampled_from(NAMES), st.sampled_from(FOLDERS)
content = st.integers(0, CONTENTS - 1)
change = st.one_of(
    st.tuples(st.just("write"), name, content),
    st.tuples(st.just("move"), name, name),
    st.tuples(st.just("copy"), name, name),
    st.tuples(st.just("delete"), name),
    st.tuples(st.just("move"), folder, folder),
    st.tuples(st.just("delete"), folder),
)
passing = st.one_of(
    st.tuples(st.just("step"), st.sampled_from([0.0, 1.0, SETTLE_SECONDS + 0.1])),
    st.tuples(st.just("settle")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("kill"), st.integers(1, 3)),
)


class _KilledError(Exception):
    """The process is killed while it reports an event."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mean_color_bundle(tmp_path_factory.mktemp("bundle") / "model.onnx", CALIBRATED)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Several photos of each color, which are edits of each other, and a file that is no photo."""
    path = tmp_path_factory.mktemp("contents") / "photo.png"
    colors = [*RGB_U8, *RGB_U8, "red"]
    return [draw_photo(path, color, shade=shade).read_bytes() for shade, color in enumerate(colors)] + [b"no photo"]


def apply(root: Path, contents: list[bytes], operation: tuple) -> list[Path]:
    """Change the disk, and return the paths that have changed."""
    kind, *rest = operation
    path = root / rest[0]
    if kind == "write":
        if path.is_dir():
            return []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[rest[1]])
        return [path.parent.parent, path.parent, path]
    if not path.exists():
        return []
    if kind == "delete":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return [path]
    target = root / rest[1]
    if path == target or target.is_relative_to(path) or path.is_relative_to(target):
        return []
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "copy":
        shutil.copyfile(path, target)
    else:
        if target.is_dir():
            shutil.rmtree(target)
        path.rename(target)
    return [path, target.parent.parent, target.parent, target]


def photos_on_disk(watched: WatchedFolder, contents: list[bytes]) -> dict[bytes, set[str]]:
    """Return the paths of each photo's content."""
    paths: defaultdict[bytes, set[str]] = defaultdict(set)
    for path in watched.photos.rglob("*.png"):
        if path.read_bytes() != contents[-1]:
            paths[hashlib.sha256(path.read_bytes()).digest()].add(str(path))
    return paths


def check_gallery_equals_disk(watched: WatchedFolder, contents: list[bytes]) -> None:
    on_disk, rows = photos_on_disk(watched, contents), watched.rows()
    assert {sha256 for _, sha256, is_missing in rows.values() if not is_missing} == on_disk.keys()
    assert len({sha256 for _, sha256, _ in rows.values()}) == len(rows)
    for path, sha256, is_missing in rows.values():
        assert is_missing or path in on_disk[sha256]
        assert not (is_missing and sha256 in on_disk)
    assert replay(watched.events) == {
        number: (path_before_replacement(path), is_missing) for number, (path, _, is_missing) in rows.items()
    }


A, B, SETTLE = "a.png", "b.png", ("settle",)


@example([("write", A, 0), ("write", B, 2), SETTLE, ("move", A, "c.png"), ("move", B, A), ("move", "c.png", B)])
@example([("write", A, 0), SETTLE, ("copy", A, B), SETTLE, ("delete", A), SETTLE, ("write", B, 2)])  # was a copy once
@expensive()
@given(operations=st.lists(st.one_of(change, change, passing), max_size=20))
def test_gallery_equals_the_disk_and_the_events_whatever_happens(
    bundle: Path, contents: list[bytes], operations: list[tuple]
):
    with tempfile.TemporaryDirectory() as folder:
        watched = WatchedFolder(Path(folder), bundle)
        watched.write("never empty.txt", b"")
        for operation in operations:
            match operation:
                case ("step", seconds):
                    watched.step(seconds)
                case ("settle",):
                    watched.settle()
                case ("restart",):
                    watched.restart()
                case ("kill", after):
                    kill_at_event(watched, after)
                case _:
                    paths = apply(watched.photos, contents, operation)
                    for path in paths[-1:]:  # moves keep the time
                        if operation[0] in ("write", "copy") and path.is_file():
                            watched.touch(path)
        watched.settle()
        watched.settle()
        check_gallery_equals_disk(watched, contents)
        ids = [event["id"] for event in unique(watched.events)]
        numbers = [int(event_id.rpartition("-")[2]) for event_id in ids]
        assert numbers == sorted({*numbers})
        count = len(ids)
        watched.settle()
        assert len(unique(watched.events)) == count, "nothing is reported twice"
        watched.gallery.close()


def kill_at_event(watched: WatchedFolder, after: int) -> None:
    """Kill the watch when it reports one of the next events, and start another."""
    remaining = iter(range(after))

    def report(_: object) -> None:
        if next(remaining, None) is None:
            raise _KilledError

    watched.on_event = report
    try:
        watched.settle()
    except _KilledError:
        pass
    finally:
        watched.on_event = lambda _: None
    watched.restart()
