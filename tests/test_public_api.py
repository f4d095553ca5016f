"""The public names: those in `__all__` of `familiar` and of its packages."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import familiar

PACKAGES = [
    "familiar",
    *(f"familiar.{module.name}" for module in pkgutil.iter_modules(familiar.__path__) if module.ispkg),
]
INTERNAL = ("familiar.web", "familiar.cli", "familiar.integrations")  # programs, not libraries
LIBRARY = [package for package in PACKAGES if package not in INTERNAL]
NAMES = [(package, name) for package in LIBRARY for name in importlib.import_module(package).__all__]
HEAVY = ("torch", "cv2", "onnxruntime", "matplotlib", "numpy", "PIL", "sklearn")


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_lists_its_public_names(package: str):
    names = importlib.import_module(package).__all__
    assert len(set(names)) == len(names)
    assert (package in INTERNAL) == (not names)


def test_no_module_hides_a_public_name_of_its_package():
    hidden = [f"{package}.{name}" for package, name in NAMES if find_spec(f"{package}.{name}")]
    assert set(hidden) == {f"familiar.{name}" for name in ("datasets", "losses", "metrics", "models", "recipes")}


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_every_public_name_is_documented(package: str, name: str):
    value = getattr(importlib.import_module(package), name)
    if isinstance(value, dict):
        return  # a catalog: its entries are documented
    documentation = inspect.getdoc(value) or ""
    assert documentation
    assert not documentation.startswith(f"{name}("), "a dataclass's signature is no documentation"


def test_importing_familiar_loads_no_heavy_package():
    assert run_python(f"import sys, familiar; print([name for name in {HEAVY!r} if name in sys.modules])") == "[]\n"
    assert "Gallery" in run_python("import familiar; print(dir(familiar))")


@pytest.mark.parametrize("package", [package for package in PACKAGES if package not in INTERNAL])
def test_stub_and_package_agree(package: str):
    folder = Path(familiar.__path__[0], *package.split(".")[1:])
    stub = folder / "__init__.pyi"
    if not stub.exists():
        assert package in ("familiar.losses", "familiar.client", "familiar.recipes")  # their imports are not lazy
        return
    imported = {
        alias.name
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(importlib.import_module(package).__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = familiar.no_such_name  # pyright: ignore


def public_functions() -> dict[str, tuple[Callable[..., object], str]]:
    """Return the public functions, methods and constructors: the name, the function, and where it is documented."""
    functions: dict[str, tuple[Callable[..., object], str]] = {}
    for package, public in NAMES:
        value = getattr(importlib.import_module(package), public)
        if not isinstance(value, type):
            if inspect.isfunction(value):
                functions[f"{value.__module__}.{value.__qualname__}"] = value, inspect.getdoc(value) or ""
            continue
        for name, member in vars(value).items():
            function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
            is_constructor = name == "__init__" and not dataclasses.is_dataclass(value)
            if not inspect.isfunction(function) or (name.startswith("_") and not is_constructor):
                continue
            if function.__module__ == "typing":
                continue  # a protocol's constructor
            overridden = [documented for base in value.__mro__[1:] if (documented := vars(base).get(name))]
            if is_constructor or not overridden:  # else the base class describes them
                text = f"{inspect.getdoc(value)}\n{function.__doc__}" if is_constructor else inspect.getdoc(function)
                functions[f"{value.__module__}.{value.__qualname__}.{name}"] = function, text or ""
    return functions


FUNCTIONS = public_functions()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_described(name: str):
    function, documentation = FUNCTIONS[name]
    parameters = inspect.signature(inspect.unwrap(function)).parameters.keys() - {"self", "cls"}
    missing = {each for each in parameters if not re.search(rf"^\s*\**{each}: \w", documentation, re.MULTILINE)}
    assert not missing, "describe them under `Args:`"


def public_dataclasses() -> dict[str, type]:
    values = (getattr(importlib.import_module(package), name) for package, name in NAMES)
    return {f"{each.__module__}.{each.__qualname__}": each for each in values if dataclasses.is_dataclass(each)}


DATACLASSES = public_dataclasses()


@pytest.mark.parametrize("name", DATACLASSES)
def test_every_field_is_described(name: str):
    documentation = "\n".join(inspect.getdoc(base) or "" for base in DATACLASSES[name].__mro__[:-1])
    fields = {field.name for field in dataclasses.fields(DATACLASSES[name]) if not field.name.startswith("_")}
    missing = {each for each in fields if not re.search(rf"^\s*{each}: \S", documentation, re.MULTILINE)}
    assert not missing, "describe them under `Attributes:`"
