"""What docs/how-to/install.md says of a release: the wheel, its reproducibility, and the steps of the image."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "install.md"
README = ROOT / "README.md"


def tracked_files(folder: str) -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", folder]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def copy_checkout(source: Path) -> None:
    """Copy what a wheel is built of."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        source.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source)
    for name in tracked_files("src"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)  # without times and permissions


def build_wheel(source: Path, target: Path) -> Path:
    """Build the wheel of a copy of the checkout."""
    copy_checkout(source)
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    has_address = "repository" in project["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    assert ("Project-URL: Repository, " in metadata) == has_address
    assert re.findall(r"\]\((?!https://|#).*?\)", metadata.partition("\n\n")[2]) == []


@pytest.mark.slow
def test_addresses_of_the_package_are_made_of_one_value(tmp_path: Path):
    copy_checkout(tmp_path)
    settings = tmp_path / "pyproject.toml"
    (line,) = re.findall("^.*repository = .*$", settings.read_text(), re.MULTILINE)
    settings.write_text(settings.read_text().replace(line, 'repository = "https://example.org/ours"'))
    command = [sys.executable, "-m", "hatchling", "metadata"]
    metadata = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout)
    tag = f"v{metadata['version']}"
    assert metadata["urls"]["Changelog"] == f"https://example.org/ours/blob/{tag}/CHANGELOG.md"
    assert metadata["urls"]["Repository"] == "https://example.org/ours"
    text = metadata["readme"]["text"]
    picture, page = "docs/images/album.png", "docs/how-to/deploy.md"
    assert f"](https://example.org/ours/raw/{tag}/{picture})" in text
    assert f"](https://example.org/ours/blob/{tag}/{page})" in text
    targets = {
        target.removeprefix(f"https://example.org/ours/blob/{tag}/") for target in re.findall(r"\]\((.*?)\)", text)
    }
    assert [target for target in targets if "//" not in target and not (ROOT / target.partition("#")[0]).exists()] == []


def test_citation_names_the_version_and_the_address_of_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == settings["project"]["version"]
    assert citation["license"] == settings["project"]["license"]
    address = settings["tool"]["hatch"]["metadata"]["hooks"]["custom"].get("repository")
    assert citation.get("repository-code") == address


def test_image_installs_as_the_page_does():
    containerfile = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    (step,) = re.findall(r"pip install (.*?)&&", containerfile)
    (line,) = re.findall(r"pip install (--constraint .*)", PAGE.read_text())
    in_image = step.replace("--no-cache-dir", "").replace('"/tmp/familiar/${PYTHON}.txt"', "/tmp/familiar/3.11.txt")
    assert (
        in_image.replace("/tmp/familiar/", "").split() == line.replace("dist/", "").replace("constraints/", "").split()
    )
    assert re.findall("^ARG PYTHON=(.*)$", containerfile, re.MULTILINE) == ["3.11"]
    (requested,) = re.findall(r"\)\[(.*)\]", line)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(requested.split(",")) <= extras.keys()


def test_image_gets_nothing_but_the_wheel_and_the_versions():
    lines = (ROOT / ".containerignore").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["*", "!constraints/*.txt", "!dist/*.whl"]
    (copied,) = re.findall(r"^COPY (.*) \S+$", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE)
    assert copied.split() == ["constraints/${PYTHON}.txt", "dist/*.whl"]


def test_targets_of_the_page_exist():
    named = set(re.findall(r"make ([a-z-]+)", PAGE.read_text()))
    assert named >= {"dist", "test-lowest", "test-plain"}
    for target in named:
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), target


def install_lines(page: Path) -> list[str]:
    return re.findall(r"^pip install .*$", page.read_text(), flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.exhaustive  # installs torch: minutes
def test_install_lines_of_readme_work_in_a_fresh_environment(tmp_path: Path):
    clone = tmp_path / "clone"
    for name in tracked_files("."):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, clone / name)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    unset = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PATH"] = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{environment['PATH']}"

    def run(line: str) -> str:
        done = subprocess.run(line, shell=True, cwd=clone, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    plain, train = install_lines(README)
    run(plain)
    assert "pet-nano" in run("familiar models --shipped")
    run(train)
    assert "pet-mobile" in run("familiar recipes")
    run("python -c 'import familiar.training.fitting'")


def test_pages_install_what_is_here():
    """Until the package is on an index, its name there may be another's."""
    pages = [README, *(ROOT / "docs").rglob("*.md")]
    by_name = {str(page): line for page in pages for line in install_lines(page) if "familiar-faces" in line}
    assert by_name == {}
    assert set(install_lines(ROOT / "docs" / "index.md")) == set(install_lines(README))


def test_every_extra_is_on_the_first_page_and_none_needs_another_beside_it():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert len(extras) <= 14
    page = (ROOT / "docs" / "index.md").read_text()
    assert set(re.findall(r"^\| `\[(\w+)\]` \|", page, flags=re.MULTILINE)) == extras.keys() - {"dev"}
    named = set(
        re.findall(r"familiar-faces\[(\w+)\]", "".join(path.read_text() for path in (ROOT / "src").rglob("*.py")))
    )
    assert named <= extras.keys()
