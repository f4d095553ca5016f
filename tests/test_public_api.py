"""The public names: those in `__all__` of `familiar` and of its packages."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import familiar

PACKAGES = [
    "familiar",
    *(f"familiar.{module.name}" for module in pkgutil.iter_modules(familiar.__path__) if module.ispkg),
]
INTERNAL = ("familiar.web", "familiar.cli")  # programs, not libraries
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


@pytest.mark.slow
def test_every_public_name_is_importable_after_all_submodules():
    # A submodule of the same name would hide it.
    code = f"""
import importlib, pkgutil, familiar
for module in pkgutil.walk_packages(familiar.__path__, "familiar."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for package, name in {NAMES!r}:
    value = getattr(importlib.import_module(package), name)
    if type(value).__name__ == "module" and (package, name) != ("familiar", name):
        print(package, name)
"""
    assert run_python(code) == ""


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
