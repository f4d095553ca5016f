"""Embedding by Ray's workers: the same rows as in one process, also if workers are killed."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from familiar.core.errors import BadBundle, CannotWrite, FamiliarError
from familiar.datasets.folders import DataSpec
from familiar.datasets.shards.packing import pack
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.integrations.ray import engine
from familiar.integrations.ray.engine import EmbeddedParts, embed_with_ray, list_photo_files
from familiar.integrations.ray.parts import PhotoFile
from familiar.integrations.ray.worker import EmbeddingSettings, Worker
from support.color_album import draw_album

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(mean_color_bundle: Path) -> EmbeddingSettings:
    return EmbeddingSettings((str(mean_color_bundle),), "none")


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for path in folder.glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            rows.setdefault(row["photo"], []).append(row)
    return rows


def worker_processes() -> list[int]:
    """List the processes in which Ray runs our workers."""
    processes: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            if command.startswith(b"ray::") and b"SlowWorker" in command:
                processes.append(int(entry.name))
    return processes


@contextmanager
def killing(folder: Path, kills: int, seed: int = 0) -> Iterator[list[int]]:
    """Kill workers at random moments after the first part was begun; yields the list of those killed."""
    generator, killed, finished = np.random.default_rng(seed), [], threading.Event()

    def kill() -> None:
        while len(killed) < kills and not finished.is_set():
            if any(folder.glob("*.attempts")) and (processes := worker_processes()):
                time.sleep(generator.uniform(0, 0.4))
                process = int(generator.choice(processes))
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed.append(process)
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        finished.set()
        thread.join()


@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds Ray's processes in /proc")
@pytest.mark.parametrize(("kills", "photos"), [(1, 30), (10, 150)])
def test_every_photo_has_its_rows_though_workers_are_killed(
    settings: EmbeddingSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, photos: int
):
    paths = draw_album(tmp_path / "album", red=photos // 2, blue=photos - photos // 2)
    broken = tmp_path / "album" / "broken.jpg"
    broken.write_text("no photo")
    # Ray's workers import this module, and are slow enough to be killed at work.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(engine, "Worker", SlowWorker)
    output = tmp_path / "out"
    with killing(output, kills) as killed:
        result = embed_with_ray(settings, [str(tmp_path / "album")], output, workers=2)
    assert len(killed) == kills
    assert result == EmbeddedParts(photos + 1, photos, 1, known=0, changed=0)
    rows = rows_of(output)
    assert sorted(rows) == sorted(map(str, [*paths, broken]))
    assert {len(each) for each in rows.values()} == {1}
    expected = embed_photos(Embedder(settings.models[0]), paths, "none").embeddings
    np.testing.assert_array_equal([rows[str(path)][0]["embedding"] for path in paths], expected)
    assert "not a photo" in rows[str(broken)][0]["error"]
    assert not list(output.glob("*.attempts"))
    sizes = [pq.read_metadata(part).num_rows for part in output.glob("part-*.parquet")]
    assert len(sizes) == min(photos + 1, 2 * engine.PARTS_PER_WORKER)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(("worker", "message"), [("FullDisk", "^out: no space$"), ("NoModel", "stopped .*: no model")])
def test_the_error_of_a_worker_is_raised(
    settings: EmbeddingSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: str, message: str
):
    draw_album(tmp_path / "album", red=2)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(engine, "Worker", globals()[worker])
    with pytest.raises(FamiliarError, match=message):
        embed_with_ray(settings, [str(tmp_path / "album")], tmp_path / "out", workers=1)


class FullDisk(Worker):
    """Cannot write."""

    def embed_part(self, photos: Any) -> dict[str, int]:
        assert photos
        raise CannotWrite("out: no space")


class NoModel(Worker):
    """Does not start, as on a machine that lacks the model."""

    def __init__(self, *_: Any) -> None:
        raise BadBundle("no model")


class SlowWorker(Worker):
    """Takes a tenth of a second for each photo."""

    def __init__(self, settings: EmbeddingSettings, folder: Path) -> None:
        super().__init__(settings, folder)
        detector = self.detector

        class Slow:
            def detect(self, photo: Any) -> Any:
                time.sleep(0.1)
                return detector.detect(photo)

        self.detector = Slow()


def embed_in_this_process(
    settings: EmbeddingSettings, photos: list[PhotoFile], folder: Path, workers: int
) -> Iterator[dict[str, int]]:
    """Stand in for Ray, which takes seconds to start."""
    worker = Worker(settings, folder)
    for start in range(workers):
        if part := photos[start::workers]:
            yield worker.embed_part(part)


def test_repeated_command_embeds_what_is_new_or_changed(
    settings: EmbeddingSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "_embed_parts", embed_in_this_process)
    album, output = tmp_path / "album", tmp_path / "out"
    draw_album(album, red=5)

    def embed() -> EmbeddedParts:
        return embed_with_ray(settings, [str(album)], output, workers=2)

    assert embed() == EmbeddedParts(5, 5, 0, known=0, changed=0)
    assert embed() == EmbeddedParts(0, 0, 0, known=5, changed=0)
    draw_album(album, blue=1)
    assert embed() == EmbeddedParts(1, 1, 0, known=5, changed=0)
    changed = album / "red2.png"
    changed.write_bytes((album / "blue1.png").read_bytes())
    assert embed() == EmbeddedParts(1, 1, 0, known=5, changed=1)
    rows = rows_of(output)
    assert {name: len(each) for name, each in rows.items()} == {str(path): 1 for path in album.iterdir()}
    assert rows[str(changed)][0]["embedding"] == rows[str(album / "blue1.png")][0]["embedding"]
    (album / "red1.png").unlink()  # its row stays
    assert embed() == EmbeddedParts(0, 0, 0, known=5, changed=0)


def test_photos_in_shards(settings: EmbeddingSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "_embed_parts", embed_in_this_process)
    pack(DataSpec(("synthetic:cats:2x2",)).read(), tmp_path / "shards")
    result = embed_with_ray(settings, [str(tmp_path / "shards")], tmp_path / "out", workers=1)
    assert result == EmbeddedParts(4, 4, 0, known=0, changed=0)


def test_two_writers_are_refused(settings: EmbeddingSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    draw_album(tmp_path / "album", red=1)
    errors: list[str] = []

    def embed_while_another_does(*_: Any) -> list[dict[str, int]]:
        with pytest.raises(CannotWrite, match="another process is embedding photos into it") as caught:
            embed_with_ray(settings, [str(tmp_path / "album")], tmp_path / "out")
        errors.append(str(caught.value))
        return []

    monkeypatch.setattr(engine, "_embed_parts", embed_while_another_does)
    embed_with_ray(settings, [str(tmp_path / "album")], tmp_path / "out")
    assert len(errors) == 1


def test_a_photo_named_twice_is_listed_once(tmp_path: Path):
    paths = draw_album(tmp_path / "album", red=2)
    files = list_photo_files([str(paths[0].parent), str(paths[1])])
    assert [file.photo for file in files] == paths
    assert files[0].state == (paths[0].stat().st_size, paths[0].stat().st_mtime_ns)


def test_photos_that_are_crops_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """As without Ray; a detector that the user names looks for faces all the same."""
    monkeypatch.setattr(engine, "_embed_parts", embed_in_this_process)
    pack(DataSpec(("synthetic:cats:4x3",)).read(), tmp_path / "crops")
    boxes: dict[str | None, list[list[float]]] = {}
    for detector in (None, "pets"):
        output = tmp_path / f"by {detector}"
        embed_with_ray(EmbeddingSettings(("pet-nano",), detector), [str(tmp_path / "crops")], output, workers=1)
        boxes[detector] = [row["box_xyxy_px"] for rows in rows_of(output).values() for row in rows]
        assert caplog.text.count("they are crops already") == 1
    side = boxes[None][0][2]
    assert boxes[None] == [[0, 0, side, side]] * 12
    assert [0, 0, side, side] not in boxes["pets"]
