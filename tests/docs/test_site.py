"""The documentation site: no dead link, every page in the navigation, every generated table current."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.api_pages import packages
from support.docs_tables import build
from support.markdown_links import anchors, dead_links

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))
OTHERS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "RELEASE.md", "SECURITY.md", "examples/browser/README.md"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages with their tables."""
    folder = tmp_path_factory.mktemp("built") / "docs"
    build(folder)
    return folder


@pytest.mark.slow  # imports torch and the server
def test_pages_have_no_dead_link_and_none_out_of_the_site(built: Path) -> None:
    dead = {str(path): links for path in built.rglob("*.md") if (links := dead_links(path, built))}
    assert dead == {}


@pytest.mark.slow
def test_pages_have_the_tables_that_code_makes(built: Path) -> None:
    pages = [path.read_text("utf-8") for path in built.rglob("*.md")]
    assert not [page for page in pages if re.search(r"<!-- table: (?!benchmarks/)", page)]
    options = (built / "reference" / "options.md").read_text("utf-8")
    assert "## gallery export\n" in options
    assert "| `--precision` |" in options
    assert "| `POST /search` |" in (built / "reference" / "http-api.md").read_text("utf-8")
    assert "| `arcface` | `ArcFace` |" in (built / "reference" / "losses.md").read_text("utf-8")
    assert "| `nano` | 112 | 128 |" in (built / "reference" / "networks.md").read_text("utf-8")
    assert "| zensical | MIT | development |" in (built / "reference" / "licenses.md").read_text("utf-8")


@pytest.mark.parametrize("path", OTHERS)
def test_file_beside_the_site_has_no_dead_link(path: str) -> None:
    assert dead_links(ROOT / path, ROOT) == []


def test_dead_links_are_detected(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "outside.md").write_text("# Outside\n")
    (tmp_path / "docs" / "other.md").write_text("# Other: `a - b`\n\n## A heading\n\n```text\n# no heading\n```\n")
    page = tmp_path / "docs" / "page.md"
    page.write_text(
        "# Page\n\n[ok](other.md) [ok](other.md#a-heading) [ok](#page) [ok](https://example.org/x) "
        "`[code](gone.md)`\n\n"
        "```text\n[code](gone.md)\n```\n\n"
        "[a](gone.md) [b](other.md#no-heading) [c](#nowhere) [d](../outside.md) [two\nlines](missing.png)\n"
    )
    dead = ["gone.md", "other.md#no-heading", "#nowhere", "../outside.md", "missing.png"]
    assert dead_links(page, tmp_path / "docs") == dead
    # Sites differ in the anchor of a heading with a lone dash.
    assert anchors(tmp_path / "docs" / "other.md") == {"a-heading"}


def test_navigation_lists_every_page_once() -> None:
    def leaves(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [f"docs/{entry}"]
        children = entry.values() if isinstance(entry, dict) else entry
        return [leaf for child in children for leaf in leaves(child)]

    listed = leaves(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    assert sorted(listed) == PAGES


def test_every_page_begins_with_its_only_title() -> None:
    for path in PAGES:
        text = re.sub(r"```.*?```", "", (ROOT / path).read_text(), flags=re.DOTALL)
        assert text.startswith("# "), path
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, path


def test_every_package_has_a_page_that_lists_it() -> None:
    for name in packages():
        assert f"<!-- table: api familiar.{name} -->" in (DOCS / "reference" / "python" / f"{name}.md").read_text()


@pytest.mark.exhaustive
@pytest.mark.skipif(not find_spec("zensical"), reason="zensical is not installed: pip install '.[dev]'")
def test_site_builds_in_strict_mode(tmp_path: Path, built: Path) -> None:
    shutil.copytree(built, tmp_path / "build" / "docs")
    for name in ("src", "tests/support"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.onnx"))
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(tmp_path / "site").with_suffix(".md") for path in (tmp_path / "site").rglob("*.html")}
    assert {Path(path).relative_to("docs") for path in PAGES} <= pages
    for page in (built / "reference" / "python").glob("*.md"):
        html = (tmp_path / "site" / "reference" / "python" / page.with_suffix(".html").name).read_text()
        entries = re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
        assert [entry for entry in entries if f'id="{entry}"' not in html] == []


def test_reference_shows_default_values_of_settings() -> None:
    griffe = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(str(ROOT / "tests" / "support" / "site_extension.py"))
    package = griffe.load("familiar", search_paths=[ROOT / "src"], extensions=extensions)
    defaults = {
        (name, parameter.name): str(parameter.default)
        for name in ("losses.classifiers.CosFace", "losses.triplet.SemiHard", "training.settings.BudgetSettings")
        for parameter in package[name].parameters
    }
    assert defaults["losses.classifiers.CosFace", "margin"] == "0.35"
    assert defaults["losses.classifiers.CosFace", "scale"] == "64.0"
    assert defaults["losses.triplet.SemiHard", "margin"] == "0.2"
    assert defaults["training.settings.BudgetSettings", "epochs"] == "40"
    assert not [key for key, default in defaults.items() if "setting(" in default]
