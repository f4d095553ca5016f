"""Users of Python can do all that commands can: for each command of `familiar gallery` there are methods."""

import inspect
import re
import sys
from types import ModuleType

import click
import pytest

from familiar.cli.commands.gallery import gallery as commands
from familiar.gallery import Gallery

METHODS = {
    "enroll": ("enroll",),
    "search": ("search", "identify"),
    "verify": ("verify",),
    "cluster": ("cluster",),
    "review": ("questions", "remaining"),
    "name": ("name",),
    "confirm": ("confirm",),
    "merge": ("merge",),
    "split": ("split",),
    "move": ("move",),
    "reject": ("reject",),
    "undo": ("undo",),
    "forget": ("forget",),
    "stats": ("statistics",),
    "migrate": ("migrate",),
    "check": ("check",),
    "repair": ("repair",),
    "backup": ("backup",),
    "restore": ("restore",),
    "import": ("import_labels",),
    "export": ("export",),
    "index": ("update_index",),
}
LOST_PETS = {"register"}  # the register of lost pets is no part of the gallery


def module_of(command: click.Command) -> ModuleType:
    return sys.modules[inspect.unwrap(command.callback).__module__]  # pyright: ignore[reportArgumentType]


def gallery_calls(module: ModuleType) -> set[str]:
    """Return the names of the methods that a module calls on a gallery."""
    return set(re.findall(r"\b[gG]allery\.(\w+)\(", inspect.getsource(module)))


def test_each_command_has_methods():
    assert METHODS.keys() == commands.commands.keys() - LOST_PETS


@pytest.mark.parametrize("command", METHODS)
def test_command_calls_documented_methods(command: str):
    module = module_of(commands.commands[command])
    # `index` shares its call with the commands that bring the index up to date after a change.
    calls = gallery_calls(module) | gallery_calls(sys.modules["familiar.cli.commands.gallery.indexing"])
    for method in METHODS[command]:
        assert inspect.getdoc(getattr(Gallery, method))
        assert method in calls
