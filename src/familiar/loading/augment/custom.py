"""Augmentation by a function of the user, imported by name: `module:function`."""

import sys
import traceback
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.errors import BadRecipe
from familiar.loading.augment.operations import Pixels

CUSTOM_STREAM = 9  # makes these draws independent of others with the same seed

CustomFunction = Callable[[Pixels, np.random.Generator], Any]


@cache
def import_function(name: str) -> CustomFunction:
    """Import a function of the user. The current folder is searched first, as by `python -m`.

    Args:
        name: `module:function`, as in `Augmentation.custom`.

    Raises:
        BadRecipe: the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise BadRecipe(
                f"{_setting(name)}: there is no module {error.name}; write the function into a file of that name in "
                f"the current folder, {folder}, or install the package"
            ) from error
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise BadRecipe(
            f"{_setting(name)}: importing {module_name} failed: {_cause(error, frame)}; correct it"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        reason = "has no function" if function is None else f"has a {type(function).__name__}, not a function,"
        raise BadRecipe(
            f"{_setting(name)}: {getattr(module, '__file__', module_name)} {reason} {function_name}; write "
            f"def {function_name}(rgb, generator): there, or correct the name after the colon"
        )
    return function


def apply_function(rgb_u8: Pixels, name: str, generator: np.random.Generator) -> Pixels:
    """Change a crop by a function of the user, which gets a copy.

    Raises:
        BadRecipe: the function cannot be imported, raises an exception, or returns anything else than an array of the
            same shape and type.
    """
    function = import_function(name)
    try:
        changed = function(rgb_u8.copy(), generator)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[:2][-1]  # the line of the function, not of what it called
        raise BadRecipe(f"{_setting(name)}: the function failed: {_cause(error, frame)}; correct it") from error
    if not isinstance(changed, np.ndarray) or (changed.shape, changed.dtype) != (rgb_u8.shape, np.uint8):
        result = f"{changed.dtype} of {changed.shape}" if isinstance(changed, np.ndarray) else type(changed).__name__
        raise BadRecipe(
            f"{_setting(name)}: the function must return an array of uint8 of the crop's shape {rgb_u8.shape}, but "
            f"returned {result}; end it with np.asarray(changed).clip(0, 255).astype(np.uint8)"
        )
    return changed


def check_function(name: str, side: int) -> None:
    """Try a function of the user on a random crop, so that its errors show before any photo is read.

    Args:
        name: `module:function`; without effect if it is empty.
        side: of the crop.

    Raises:
        BadRecipe: as for `apply_function`.
    """
    if name:
        generator = np.random.default_rng(CUSTOM_STREAM)
        apply_function(generator.integers(0, 256, (side, side, 3), np.uint8), name, generator)


def _setting(name: str) -> str:
    return f"augmentation.custom={name}"


def _cause(error: Exception, frame: traceback.FrameSummary) -> str:
    """Describe an exception with the line of code it comes from, which a SyntaxError names itself."""
    line = "" if isinstance(error, SyntaxError) else f" ({frame.filename}, line {frame.lineno})"
    return f"{type(error).__name__}: {error}{line}"
