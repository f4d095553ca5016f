"""What is installed: the tested versions, the hashes of their files, and their licenses."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.licenses import EXPLAINED, PAGE, is_accepted, license_rows, locked_versions, normalize

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements-locked.txt").read_text()
ONLY_ON_LINUX = re.compile("cuda-|nvidia-|triton$")  # what torch brings there


def pinned_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {normalize(name): version for name, _, version in (line.partition("==") for line in lines if line[0] != "#")}


def test_lock_has_the_pinned_versions():
    locked = {name: version for name, version in locked_versions(LOCK).items() if not ONLY_ON_LINUX.match(name)}
    assert locked == pinned_versions(), "make lock"


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
