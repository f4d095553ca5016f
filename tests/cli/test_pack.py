"""`familiar pack`: photos into shards, which other commands take as DATA."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from familiar.core.errors import BadRun
from familiar.training.run import RunFolder
from support.cli import Familiar


@pytest.mark.parametrize("format_", ["tar", "parquet"])
def test_packs_each_source_into_a_folder_of_its_name(familiar: Familiar, tmp_path: Path, format_: str):
    sources = ("synthetic:cats:3x2", "synthetic:dogs:2x2")
    done = familiar("pack", *sources, "-o", tmp_path / "shards", "--format", format_, "--shard-mb", 0.01)
    assert done.code == 0, done.err
    assert [line.partition(": ")[0] for line in done.out.splitlines()] == [
        str(tmp_path / "shards" / "synthetic-cats"),
        str(tmp_path / "shards" / "synthetic-dogs"),
    ]
    assert "6 photos of 3 identities in" in done.out
    inspected = familiar("inspect", tmp_path / "shards" / "synthetic-cats", "--json")
    assert json.loads(inspected.out)["photos"] == 6


def test_names_photos_that_cannot_be_read(familiar: Familiar, tmp_path: Path):
    folder = tmp_path / "cats" / "mia"
    assert familiar("pack", "synthetic:cats:1x1", "-o", tmp_path / "drawn").code == 0
    folder.mkdir(parents=True)
    (folder / "broken.jpg").write_text("no photo")
    nothing = familiar("pack", folder.parent, "-o", tmp_path / "shards")
    assert nothing.code == 1
    assert f"none of the 1 photos can be read: {folder / 'broken.jpg'}: is not a photo" in nothing.err
    again = familiar("pack", "synthetic:cats:1x1", "-o", tmp_path / "drawn")
    assert again.code == 1
    assert "contains shards already" in again.err


@pytest.mark.exhaustive
def test_torchrun_trains_on_shards_and_reports_once(familiar: Familiar, tmp_path: Path):
    assert familiar("pack", "synthetic:cats:16x4", "-o", tmp_path).code == 0
    settings = ["model.name=mobilenetv3_small_050", "model.initial_weights=none", "model.embedding_dim=16"]
    settings += ["input.size_px=32", "input.resize_px=32", "budget.epochs=1", "sampler.batch_size=16"]
    command = ["train", tmp_path / "synthetic-cats", "-o", tmp_path / "run", "--cache-gb", 0]
    for setting in settings:
        command += ["--set", setting]
    with pytest.raises(BadRun):
        RunFolder(tmp_path / "run").recipe()
    done = torchrun(*command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("on 2 unseen identities AUC") == 1
    assert RunFolder(tmp_path / "run").bundle.exists()
    again = torchrun(*command)
    assert again.returncode != 0
    assert again.stderr.count("familiar: ") == 1
    assert "holds a run already" in again.stderr


def torchrun(*arguments: object) -> "subprocess.CompletedProcess[str]":
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "familiar"]
    return subprocess.run(
        [sys.executable, *launcher, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
