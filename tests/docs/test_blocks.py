"""Every command in the documentation exists, and every Python block is run by a test of this folder."""

import re
import shlex
from pathlib import Path

import click
import pytest

from familiar.cli.main import familiar

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_IN = {  # page: the test module that runs its Python
    "README.md": "test_how_to.py",
    "docs/index.md": "test_how_to.py",
    "docs/how-to/sort-an-album.md": "test_how_to.py",
    "docs/how-to/train-on-my-photos.md": "test_how_to.py",
    "docs/how-to/back-up-an-album.md": "test_how_to.py",
    "docs/how-to/choose-a-model.md": "test_how_to.py",
    "docs/how-to/coming-from-other-libraries.md": "test_other_libraries.py",
    "docs/how-to/deploy.md": "test_deploy.py",
    "docs/how-to/evaluate-honestly.md": "test_how_to.py",
    "docs/how-to/explore-in-a-notebook.md": "test_notebook.py",
    "docs/how-to/find-a-lost-pet.md": "test_how_to.py",
    "docs/how-to/import-a-network.md": "test_how_to.py",
    "docs/how-to/pandas-arrow-numpy.md": "test_notebook.py",
    "docs/how-to/scikit-learn.md": "test_how_to.py",
    "docs/how-to/several-species.md": "test_species.py",
    "docs/how-to/tables-of-photos.md": "test_how_to.py",
    "docs/how-to/watch-a-folder.md": "test_watch.py",
    "docs/how-to/vectors-of-my-own.md": "test_how_to.py",
    "docs/reference/http-api.md": "test_serve.py",
    "docs/reference/losses.md": "test_losses.py",
    "docs/explanation/losses.md": "test_losses.py",
    "docs/explanation/clustering.md": "test_explanation.py",
    "docs/explanation/export.md": "test_explanation.py",
}


def commands() -> set[str]:
    """Return the `familiar` lines of all pages' console blocks, continued lines joined."""
    text = "\n".join(page.read_text() for page in PAGES)
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    lines = (line for block in blocks for line in re.sub(r"\\\n *", "", block).splitlines())
    return {line for line in lines if line.startswith("familiar ")}


@pytest.mark.parametrize("line", sorted(commands()))
def test_every_command_parses(line: str, tmp_path: Path) -> None:
    _, *arguments = shlex.split(line.replace("~/Pictures", str(tmp_path)), comments=True)
    command: click.Command = familiar
    name, context = "familiar", None
    while isinstance(command, click.Group):
        context = command.make_context(name, arguments[:1], parent=context, resilient_parsing=True)
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments, parent=context)  # a click error where an option or argument is off


def test_every_make_target_exists():
    targets = re.findall(r"^make ([\w-]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["quickstart", "test"]
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_every_correction_in_the_table_is_a_command():
    page = (ROOT / "docs" / "how-to" / "sort-an-album.md").read_text()
    corrections = {row.split()[0] for row in re.findall(r"^\| `(.*?)` \|", page, flags=re.MULTILINE)}
    assert "merge" in corrections
    gallery = familiar.commands["gallery"]
    assert isinstance(gallery, click.Group)
    assert corrections <= gallery.commands.keys()


def test_every_python_block_is_run_by_a_test() -> None:
    block = re.compile(r"^ *```(python|pycon)$", re.MULTILINE)
    with_python = {path.relative_to(ROOT).as_posix() for path in PAGES if block.search(path.read_text())}
    assert with_python == RUN_IN.keys()
    for page, module in RUN_IN.items():
        assert page.removeprefix("docs/").rpartition("/")[2] in (Path(__file__).parent / module).read_text(), page
