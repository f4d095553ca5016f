"""What docs/how-to/install.md says of a release: the wheel, its reproducibility, and the steps of the image."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "install.md"


def tracked_files(folder: str) -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", folder]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def build_wheel(source: Path, target: Path) -> Path:
    """Build the wheel of a copy of the checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source)
    for name in tracked_files("src"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)  # without times and permissions
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    subprocess.run(command, cwd=source, capture_output=True, check=True)
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_wheel_has_every_file_and_the_same_bytes_again(tmp_path: Path):
    wheel = build_wheel(tmp_path / "one", tmp_path / "first")
    again = build_wheel(tmp_path / "another folder", tmp_path / "second")
    assert wheel.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert names == {name.removeprefix("src/") for name in tracked_files("src")}
    assert "familiar/py.typed" in names
    assert "License-Expression: Apache-2.0" in metadata


def test_image_installs_as_the_page_does():
    containerfile = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    (step,) = re.findall(r"pip install (.*?)&&", containerfile)
    (line,) = re.findall(r"pip install (--constraint .*)", PAGE.read_text())
    in_image = step.replace("--no-cache-dir", "").replace("/tmp/familiar/", "")
    assert in_image.split() == line.replace("dist/", "").split()
    (requested,) = re.findall(r"\)\[(.*)\]", line)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(requested.split(",")) <= extras.keys()


def test_image_gets_nothing_but_the_wheel_and_the_versions():
    lines = (ROOT / ".containerignore").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["*", "!constraints.txt", "!dist/*.whl"]
    (copied,) = re.findall(r"^COPY (.*) \S+$", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE)
    assert copied.split() == ["constraints.txt", "dist/*.whl"]


def test_targets_of_the_page_exist():
    named = set(re.findall(r"make ([a-z-]+)", PAGE.read_text()))
    assert named >= {"dist", "test-lowest", "test-plain"}
    for target in named:
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), target
