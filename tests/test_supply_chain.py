"""What is installed: the tested versions for each Python, the hashes of their files, their licenses and libraries."""

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from support.licenses import EXPLAINED, PAGE, is_accepted, license_rows, locked_versions, normalize
from support.wheel_libraries import add_libraries

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements-locked.txt").read_text()
PYTHONS = [
    name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith("Programming Language :: Python :: ")
]


def pinned_versions(python: str) -> dict[str, str]:
    return locked_versions((ROOT / "constraints" / f"{python}.txt").read_text())


def test_each_python_has_its_tested_versions():
    assert sorted(path.stem for path in (ROOT / "constraints").iterdir()) == PYTHONS
    for python in PYTHONS:
        text = (ROOT / "constraints" / f"{python}.txt").read_text()
        assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.+!-]+", line) for line in text.splitlines()), python  # for pip
        extras = PROJECT["optional-dependencies"].values()
        required = [Requirement(each) for listed in (PROJECT["dependencies"], *extras) for each in listed]
        pinned = pinned_versions(python)
        for each in required:
            if each.name != PROJECT["name"] and (
                each.marker is None or each.marker.evaluate({"python_version": python})
            ):
                assert each.specifier.contains(pinned[normalize(each.name)]), f"{each} on {python}: make lock"


def test_lock_has_the_versions_that_releases_are_made_with():
    assert locked_versions(LOCK) == pinned_versions("3.11"), "make lock"


def test_the_workflow_tests_the_pythons_that_run_here_and_releases_with_the_locked_one():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test-and-release.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [python for python in PYTHONS if python != "3.14"]
    (python,) = (
        step["with"]["python-version"] for step in jobs["build"]["steps"] if "setup-python" in step.get("uses", "")
    )
    assert python == "3.11"
    assert [job for job, settings in jobs.items() if "permissions" in settings] == ["publish"]


def test_commit_hooks_run_tools_of_the_environment():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        assert (Path(sys.executable).parent / hook["entry"].split()[0].rpartition("/")[2]).exists(), hook["id"]


def test_sbom_has_the_libraries_inside_wheels(tmp_path: Path):
    installed = {
        "drawing_kit": [{"name": "drawing_kit", "purl": "pkg:pypi/drawing_kit@1?file_name=x.whl"}],
        "other": [],
    }
    installed["drawing_kit"] += [{"name": "cmake", "scope": "excluded"}] + 2 * [{"name": "zlib", "bom-ref": "1"}]
    for name, components in installed.items():
        info = tmp_path / f"{name}-1.dist-info"
        (info / "sboms").mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\n")
        (info / "RECORD").write_text(f"{info.name}/sboms/some.cdx.json,,\n")
        (info / "sboms" / "some.cdx.json").write_text(json.dumps({"components": components}))
    sbom = {"components": [{"name": "drawing-kit"}, {"name": "other"}]}
    add_libraries(sbom, list(distributions(path=[str(tmp_path)])))
    assert sbom == {"components": [{"name": "drawing-kit", "components": [{"name": "zlib"}]}, {"name": "other"}]}


def test_each_locked_package_has_hashes_and_no_address():
    entries = re.split(r"\n(?=\S)", LOCK.partition("\n#    make lock\n")[2].rstrip())
    assert len(entries) == len(locked_versions(LOCK)) > 200
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.+!-]+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry
    assert "://" not in LOCK


def test_licenses_are_permissive_or_explained():
    cells = [row.strip("| ").split(" | ") for row in license_rows()[2:]]
    assert len(cells) > 200
    assert [name for name, license, _ in cells if not is_accepted(license)] == []
    assert {purpose for _, _, purpose in cells} == {"use", "development"}
    for license in EXPLAINED:
        assert f"- **{license}**" in PAGE.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="the page lists the libraries in wheels for Linux")
def test_copyleft_libraries_inside_wheels_are_on_the_page():
    page = PAGE.read_text()
    table = page.partition("## Libraries inside wheels")[2].partition("## All packages")[0]
    copyleft = "lib(?:av(?:codec|format|util)|sw(?:resample|scale)|gfortran|gomp|quadmath|heif|de265|x265|zmq)"
    site_packages = Path(sysconfig.get_path("platlib"))
    libraries = [*site_packages.glob("*.libs/*.so*"), *site_packages.glob("torch/lib/*.so*")]
    matches = [(path, match[0]) for path in libraries if (match := re.match(copyleft, path.name))]
    assert matches, "NumPy's wheel has some"
    for path, library in matches:
        wheel = normalize(path.relative_to(site_packages).parts[0].removesuffix(".libs"))
        assert any(library in row and wheel in row for row in table.splitlines()), path


def test_root_folder_has_text_files_only():
    """A wheel or an archive that was left there by mistake would be in every clone for ever."""
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(listed, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no clone")
    in_root = [ROOT / name for name in done.stdout.split("\0") if name and "/" not in name]
    assert [path.name for path in in_root if path.is_file() and b"\0" in path.read_bytes()] == []
