"""The Python API reference: which names and modules each page of docs/reference/python lists.

A page lists the names of its package's `__all__`, and of a package without one its public modules. The text comes from
the docstrings when the site is built.
"""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

import familiar

# Used as commands and over HTTP: those have pages of their own.
NOT_LIBRARIES = ("cli", "web", "integrations", "__main__")
GITHUB_COMMENT = "<!-- The site shows the docstrings of these. -->"


def packages() -> list[str]:
    """Return the names of the packages that have a page, such as "losses"."""
    return [module.name for module in pkgutil.iter_modules(familiar.__path__) if module.name not in NOT_LIBRARIES]


def package_rows() -> list[str]:
    """Return a row for each package: a link to its page, and the first line of its docstring."""
    modules = {name: importlib.import_module(f"familiar.{name}") for name in packages()}
    rows = [f"| [`familiar.{name}`]({name}.md) | {_summary(module)} |" for name, module in modules.items()]
    return ["| package | contents |", "|---|---|", *rows]


def package_entries(package: str) -> list[str]:
    """Return the `:::` entries of a package such as "familiar.losses", or of `familiar` itself."""
    module = importlib.import_module(package)
    if package == "familiar":
        return _facade_entries(getattr(module, "__all__", []))
    if public := getattr(module, "__all__", None):
        # Those of `familiar` itself first: they are what most readers look for.
        ordered = sorted(public, key=lambda name: (name not in familiar.__all__, name.lower()))
        return _entries(f"{package}.{name}" for name in ordered)
    return _entries(_public_modules(module))


def _facade_entries(names: list[str]) -> list[str]:
    """Link each name of `familiar` to the page of its package; one that no package lists is described here."""
    rows, here = ["| name | what it is |", "|---|---|"], []
    for name in sorted(names, key=str.lower):
        public = getattr(familiar, name)
        if isinstance(public, ModuleType):
            target = f"{public.__name__.split('.')[1]}.md"
        elif callable(public):
            package, _, _ = public.__module__.removeprefix("familiar.").partition(".")
            if name in getattr(importlib.import_module(f"familiar.{package}"), "__all__", ()):
                target = f"{package}.md#familiar.{package}.{name}"
            else:
                here.append(f"{public.__module__}.{public.__qualname__}")
                target = f"#{here[-1]}"
        else:
            continue  # __version__
        rows.append(f"| [`familiar.{name}`]({target}) | {_summary(public)} |")
    if len(rows) == 2:
        return ["Import names from the packages below; `import familiar` alone gives only `familiar.__version__`."]
    return [*rows, "", *_entries(here)] if here else rows


def _entries(paths: Any) -> list[str]:
    return [GITHUB_COMMENT, *(line for path in paths for line in ("", f"::: {path}"))]


def _public_modules(package: ModuleType) -> list[str]:
    """Return the modules of a package that define a public class or function."""
    below = (module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
    names = [package.__name__, *(name for name in below if "._" not in name)]
    return [name for name in names if _defines_something(importlib.import_module(name))]


def _defines_something(module: ModuleType) -> bool:
    return any(
        not name.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value))
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
    )


def _summary(documented: object) -> str:
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split()).replace("|", "\\|").rstrip(".")
