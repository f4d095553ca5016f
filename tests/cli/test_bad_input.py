"""What a user may hand to a command by mistake: one clear line and exit 1, or a photo skipped and counted."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from familiar.cli import main
from familiar.datasets.folders import DataSpec
from familiar.photos import listing as photo_module
from support.cli import Answer, Familiar
from support.tiers import small_and_exhaustive

pytestmark = pytest.mark.slow

SETTINGS = (
    "budget.epochs=2 input.size_px=32 input.resize_px=32 split.test=0.1 sampler.batch_size=8 "
    "model.embedding_dim=16 validation.every_epochs=1 model.name=simple_v2 model.blocks=3"
)
TINY = ["--recipe", "quickstart", *(word for setting in SETTINGS.split() for word in ("--set", setting))]
NOT_UTF_8 = os.fsdecode(b"caf\xe9.png")
ODD_NAMES = ["a b.png", "quo'te\".png", "new\nline.png", "bell\a.png", "🐈.png", "قطة.png", NOT_UTF_8]


def draw(root: Path, identities: int = 12, photos: int = 4) -> Path:
    generator = np.random.default_rng(0)
    for identity in range(identities):
        base = generator.integers(20, 230, 3)
        (root / f"id {identity:02}").mkdir(parents=True)
        for photo in range(photos):
            pixels = np.clip(base + generator.normal(0, 12, (40, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"id {identity:02}" / f"{photo}.png")
    return root


@pytest.fixture
def colors(tmp_path: Path) -> Path:
    return draw(tmp_path / "colors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `colors`, and `run`, trained on them."""
    folder = tmp_path_factory.mktemp("trained")
    draw(folder / "colors")
    arguments = ["familiar", "train", str(folder / "colors"), "--output", str(folder / "run"), *TINY]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit, match="0"):
            main.main()
    return folder


def assert_fails(answer: Answer, *texts: str) -> None:
    assert answer.code == 1, answer.err
    (line,) = (line for line in answer.err.splitlines() if not line.startswith(("skipped ", "epoch ", "exporting ")))
    assert line.startswith("familiar: ")
    for text in texts:
        assert text in line


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# Photos


@pytest.fixture
def odd(colors: Path) -> Path:
    """Sound photos of odd kinds and names in `id 00`, six broken ones in `id 01`."""
    sound, broken = colors / "id 00", colors / "id 01"
    for name in ODD_NAMES:
        Image.new("RGB", (40, 40), "red").save(sound / "x.png")
        (sound / "x.png").rename(sound / name)
    Image.new("CMYK", (40, 40)).save(sound / "cmyk.jpg")
    Image.fromarray(np.full((40, 40), 30000, np.uint16)).save(sound / "sixteen.png")
    frames = [Image.new("RGB", (40, 30), color) for color in ("red", "lime")]
    frames[0].save(sound / "animated.gif", save_all=True, append_images=frames[1:])
    whole = (sound / "sixteen.png").read_bytes()
    (broken / "text.jpg").write_text("Dear diary")
    (broken / "zero.jpg").write_bytes(b"")
    (broken / "cut.png").write_bytes(whole[: len(whole) // 2])
    (broken / "bomb.png").write_bytes(whole.replace((40).to_bytes(4) * 2, (60_000).to_bytes(4) * 2))
    (broken / "new\nline.png").write_text("text")
    (broken / NOT_UTF_8).write_text("text")
    return colors


BROKEN = ["text.jpg", "zero.jpg", "cut.png", "bomb.png", "line.png", "caf"]


def test_embed_lists_unreadable_photos_and_keeps_unusual_names(
    odd: Path, familiar: Familiar, mean_color_bundle: Path, tmp_path: Path
):
    answer = familiar("embed", odd, "-m", mean_color_bundle, "-o", tmp_path / "v.npz", "--json")
    assert answer.code == 0, answer.err
    lines = answer.err.splitlines()
    assert len(lines) == len(BROKEN)
    assert all(any(name in line for line in lines) for name in BROKEN)
    summary = json.loads(answer.out)
    assert (summary["photos"], len(summary["skipped"])) == (48 + 10, len(BROKEN))
    assert any(NOT_UTF_8 in reason for reason in summary["skipped"])
    with np.load(tmp_path / "v.npz") as stored:
        embedded = {str(path) for path in stored["paths"]}
    assert {str(odd / "id 00" / name) for name in ODD_NAMES} <= embedded
    assert all(Path(path).exists() for path in embedded)


def test_inspect_lists_unreadable_photos_with_escaped_names(odd: Path, familiar: Familiar):
    answer = familiar("inspect", odd, "--json")
    assert len(json.loads(answer.out)["unreadable"]) == len(BROKEN)
    shown = familiar("inspect", odd)
    assert shown.code == 0, shown.err
    assert all(name in shown.out + shown.err for name in BROKEN)
    assert "\a" not in shown.out + shown.err


@pytest.mark.exhaustive
def test_train_and_evaluate_skip_unreadable_photos(odd: Path, familiar: Familiar, tmp_path: Path):
    (odd / "id 02").rename(odd / os.fsdecode(b"n\xe9\nw"))
    data = odd.rename(tmp_path / os.fsdecode(b"c\xe9ts"))
    answer = familiar("train", data, "-o", tmp_path / "run", *TINY, "--set", "budget.epochs=1", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["skipped_photos"] == len(BROKEN)
    assert sum(line.startswith("skipped ") for line in answer.err.splitlines()) <= len(BROKEN)
    report = tmp_path / "report"
    answer = familiar("evaluate", tmp_path / "run", data, "-o", report, "--split", "all", "--json")
    assert answer.code == 0, answer.err
    assert len(json.loads(answer.out)["data"]["skipped"]) == len(BROKEN)
    assert len(json.loads((report / "eval_results.json").read_text())["data"]["skipped"]) == len(BROKEN)
    assert "6 photos" in (report / "report.html").read_text()


def test_skips_photos_deleted_after_the_scan(
    colors: Path,
    familiar: Familiar,
    mean_color_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    find, read = photo_module.find_photos, DataSpec.read

    def find_and_lose(roots: tuple[Path, ...], **options: Any) -> list[Path]:
        paths = find(roots, **options)
        paths[5].unlink()
        return paths

    def read_and_lose(spec: DataSpec) -> object:
        table = read(spec)
        Path(str(table.photos[7])).unlink()
        return table

    monkeypatch.setattr(photo_module, "find_photos", find_and_lose)
    monkeypatch.setattr(DataSpec, "read", read_and_lose)
    answer = familiar("embed", colors, "-m", mean_color_bundle, "-o", tmp_path / "v.npz", "--json")
    (skipped,) = json.loads(answer.out)["skipped"]
    assert skipped.endswith("No such file or directory")
    assert json.loads(answer.out)["photos"] == 47
    answer = familiar("inspect", colors, "--json")
    assert answer.code == 0, answer.err
    (unreadable,) = json.loads(answer.out)["unreadable"]
    assert "No such file or directory" in str(unreadable)


def test_rejects_folders_without_photos(familiar: Familiar, mean_color_bundle: Path, tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_fails(familiar("inspect", empty), "empty", "IDENTITY/PHOTO")
    assert_fails(familiar("evaluate", mean_color_bundle, empty, "-o", tmp_path / "e"), "empty", "IDENTITY/PHOTO")
    assert_fails(familiar("embed", empty, "-m", mean_color_bundle, "-o", tmp_path / "v.npz"), "no photo", "empty")
    assert_fails(familiar("inspect", mean_color_bundle), "is not a folder", mean_color_bundle.name)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_one_photo_per_identity_fails_train_but_not_evaluate(
    familiar: Familiar, mean_color_bundle: Path, tmp_path: Path
):
    singles = draw(tmp_path / "singles", photos=1)
    assert_fails(familiar("train", singles, "-o", tmp_path / "run", *TINY), "no pair to validate on")
    assert not (tmp_path / "run").exists()
    answer = familiar("evaluate", mean_color_bundle, singles, "-o", tmp_path / "report")
    assert answer.code == 0
    assert answer.err.count("could not be computed") == 5


def test_inspect_counts_listed_identities_missing_from_data(colors: Path, familiar: Familiar, tmp_path: Path):
    (tmp_path / "list.txt").write_text("id 01\nTom\nid 02\n")
    answer = familiar("inspect", colors, "--identities", tmp_path / "list.txt")
    assert answer.code == 0
    assert "listed identities not found: 1" in answer.out


# Bundles and runs


@pytest.mark.parametrize("damage", ["half", "graph", "weights", "metadata"])
def test_every_command_rejects_damaged_bundle(damage: str, trained: Path, familiar: Familiar, tmp_path: Path):
    content = bytearray((trained / "run" / "model.onnx").read_bytes())
    if damage == "half":
        del content[len(content) // 2 :]
    else:
        offset = {"graph": 200, "weights": len(content) // 2, "metadata": content.rindex(b'"license"') + 12}
        content[offset[damage]] ^= 1
    model, data = tmp_path / "damaged.onnx", trained / "colors"
    model.write_bytes(content)
    photo = data / "id 00" / "0.png"
    for arguments in (
        ["verify", photo, photo, "-m", model],
        ["embed", data, "-m", model, "-o", tmp_path / "v.npz"],
        ["evaluate", model, data, "-o", tmp_path / "report"],
    ):
        assert_fails(familiar(*arguments), "damaged.onnx", "download or export it again")
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.onnx"]


def test_resume_rejects_another_recipe_or_other_photos(trained: Path, familiar: Familiar, tmp_path: Path):
    run = shutil.copytree(trained / "run", tmp_path / "run")
    data = shutil.copytree(trained / "colors", tmp_path / "colors")
    before = contents(run)
    resume = ["train", data, "-o", run, *TINY, "--resume"]
    assert_fails(familiar(*resume, "--set", "optimizer.lr=0.5"), str(run), "another recipe")
    flipped = bytearray((data / "id 05" / "1.png").read_bytes())
    Image.new("RGB", (40, 40), "red").save(data / "id 05" / "1.png")
    assert_fails(familiar(*resume), str(run), "other photos")
    (data / "id 05" / "1.png").write_bytes(flipped)
    (data / "id 05" / "2.png").unlink()
    assert_fails(familiar(*resume), str(run), "other photos")
    assert contents(run) == before


@pytest.mark.exhaustive
def test_concurrent_trainings_cannot_share_an_output_folder(trained: Path, tmp_path: Path):
    command = [sys.executable, "-m", "familiar", "train", trained / "colors", "-o", tmp_path / "run", *TINY]
    both = [
        subprocess.Popen([*command, "--set", f"seed={seed}"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for seed in (0, 1)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    won = both[1].returncode == 0
    assert_fails(Answer(1, "", errors[not won]), str(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["seed"] == int(won)


# What cannot be written


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As a disk does that is full."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.exhaustive
@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX's")
def test_failed_write_keeps_existing_outputs(trained: Path, familiar: Familiar, tmp_path: Path):
    run, data = shutil.copytree(trained / "run", tmp_path / "run"), trained / "colors"
    for name in ("v.npz", "model.onnx"):
        (tmp_path / name).write_bytes(b"before")
    before = contents(run)
    for arguments, written in (
        (["export", run, "-o", tmp_path / "model.onnx"], "model.onnx"),
        (["embed", data, "-m", run, "-o", tmp_path / "v.npz"], "v.npz"),
        (["evaluate", run, data, "-o", tmp_path / "report"], "eval_results.json"),
        (["train", data, "-o", tmp_path / "new", *TINY], "best.safetensors"),
    ):
        with largest_file(6000):
            answer = familiar(*arguments)
        assert_fails(answer, written, "cannot be written (File too large)")
    assert contents(run) == before
    assert contents(tmp_path) == {"v.npz": b"before", "model.onnx": b"before"}
    assert list((tmp_path / "new").glob(".familiar*")) == []


@pytest.mark.exhaustive
def test_training_resumes_after_disk_full_without_losing_epochs(trained: Path, familiar: Familiar, tmp_path: Path):
    """Room for the first epoch and not for the second; then more room, and the run goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    first = ("best.safetensors", "last.safetensors", "state.pt")
    room = sum((trained / "run" / name).stat().st_size for name in first) + 1_200_000
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={room}", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk can be mounted by the superuser only")
    try:
        train = ["train", trained / "colors", "-o", disk / "run", *TINY]
        answer = familiar(*train)
        assert_fails(answer, str(disk), "cannot be written (No space left on device)")
        assert answer.err.count("epoch   1") == 1
        subprocess.run(["mount", "-o", f"remount,size={10 * room}", disk], check=True)
        answer = familiar(*train, "--resume")
        assert answer.code == 0, answer.err
        assert "epoch   1" not in answer.err
        resumed = (disk / "run" / "embedder.safetensors").read_bytes()
    finally:
        subprocess.run(["umount", disk], check=True)
    assert resumed == (trained / "run" / "embedder.safetensors").read_bytes()


@pytest.mark.parametrize(
    "command",
    small_and_exhaustive(
        "train DATA -o OUT/file",
        "train DATA -o OUT/file/run",
        "embed DATA -m RUN -o OUT/folder",
        "evaluate RUN DATA -o OUT/file",
        "export RUN -o OUT/file/model.onnx",
        "export RUN -o OUT/folder",
    ),
)
def test_rejects_output_blocked_by_existing_file_or_folder(
    command: str, trained: Path, familiar: Familiar, tmp_path: Path
):
    (tmp_path / "file").write_bytes(b"before")
    (tmp_path / "folder").mkdir()
    folders = {"RUN": trained / "run", "DATA": trained / "colors", "OUT": tmp_path}
    words = [re.sub("^(RUN|DATA|OUT)", lambda word: str(folders[word[0]]), word) for word in command.split()]
    assert_fails(familiar(*words, *(TINY if words[0] == "train" else ())), str(tmp_path))
    assert contents(tmp_path) == {"file": b"before"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_inspect_reports_full_disk_on_stdout(colors: Path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "familiar", "inspect", colors],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert_fails(Answer(done.returncode, "", done.stderr.decode()), "No space left on device")


@pytest.mark.one_case
@pytest.mark.parametrize("encoding", ["utf-8:strict", "latin-1:strict", "ascii:strict"])
def test_embed_prints_any_file_name_in_any_output_encoding(
    encoding: str, colors: Path, mean_color_bundle: Path, tmp_path: Path
):
    output = tmp_path / os.fsdecode("قطة ".encode() + b"\xe9.npz")
    command = [sys.executable, "-m", "familiar", "embed", colors, "-m", mean_color_bundle, "-o", output]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for arguments in ([], ["--json"]):
        done = subprocess.run([*command, *arguments], capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["output"] == str(output)
    assert output.exists()
