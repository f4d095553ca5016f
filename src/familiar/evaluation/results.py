"""`eval_results.json`: written, read, and two of them compared."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.errors import BadResults
from familiar.core.files import write_atomically
from familiar.metrics.bootstrap import Replicates

FORMAT_VERSION = 2  # docs/evaluation.md says what stands where
_DIGITS = 7  # of a replicate: its figures are no more exact


def write_results(path: Path, results: dict[str, Any], replicates: dict[str, Replicates]) -> None:
    """The figures for people to read, and each suite's replicates in one line each, for a comparison."""
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    lines = [
        f"  {json.dumps(f'{suite}.{name}')}: {json.dumps([round(value, _DIGITS) for value in values.tolist()])}"
        for suite, figures in replicates.items()
        for name, values in figures.items()
    ]
    text = text[: text.rindex("\n}")] + ',\n "replicates": {\n' + ",\n".join(lines) + "\n }\n}\n"
    write_atomically(path, text.encode("utf-8", "backslashreplace"))


def read_results(path: Path) -> dict[str, Any]:
    """BadResults where the file is missing, damaged or of another version."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadResults(f"{path}: no results can be read from it ({error})") from error
    if not isinstance(stored, dict) or "format_version" not in stored:
        raise BadResults(f"{path}: holds no results of `familiar evaluate`")
    if stored["format_version"] != FORMAT_VERSION:
        raise BadResults(
            f"{path}: is of format {stored['format_version']}, this version reads {FORMAT_VERSION}; evaluate again"
        )
    try:
        for name, values in stored["replicates"].items():
            np.array(values, np.float64).reshape(-1)[0]
            float(at_path(stored, name))
        _ = stored["data"]["fingerprint"], stored["interval"]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadResults(f"{path}: is no whole eval_results.json ({error!r}); evaluate again") from error
    return stored


def at_path(results: dict[str, Any], path: str) -> Any:
    """The value at a path such as "verification.tar_at_far.1e-2"."""
    found: Any = results
    for key in path.split("."):
        found = found[key]
    return found
