"""Write and read `eval_results.json`."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.errors import BadResults
from familiar.core.files import write_atomically
from familiar.evaluation.results_version_2 import upgrade_from_version_2
from familiar.metrics.bootstrap import Replicates

FORMAT_VERSION = 3  # docs/evaluation.md lists the keys
_REPLICATE_DIGITS = 7  # the metrics are no more exact


def write_results(file: Path, results: dict[str, Any], replicates: dict[str, Replicates]) -> None:
    """Write results as JSON: the metrics indented for people, then the replicates of each metric on one line.

    Args:
        file: the file to write.
        results: everything but the replicates.
        replicates: those of each suite, which a comparison of two models reads.
    """
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    rounded = {
        f"{suite}.{name}": [round(value, _REPLICATE_DIGITS) for value in values.tolist()]
        for suite, suite_replicates in replicates.items()
        for name, values in suite_replicates.items()
    }
    lines = [f"  {json.dumps(path)}: {json.dumps(values)}" for path, values in rounded.items()]
    text = text[: text.rindex("\n}")] + ',\n "replicates": {\n' + ",\n".join(lines) + "\n }\n}\n"
    write_atomically(file, text.encode("utf-8", "backslashreplace"))


def read_results(path: Path) -> dict[str, Any]:
    """Read `eval_results.json`; the keys of a file of version 2 are renamed to those of the current version.

    Raises:
        BadResults: the file is missing, damaged or of a version that cannot be read.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadResults(f"{path}: no results can be read from it ({error})") from error
    if not isinstance(stored, dict) or "format_version" not in stored:
        raise BadResults(f"{path}: holds no results of `familiar evaluate`")
    if stored["format_version"] == 2:
        stored = upgrade_from_version_2(stored)
    if stored["format_version"] != FORMAT_VERSION:
        raise BadResults(
            f"{path}: has format version {stored['format_version']}, but this version of familiar reads "
            f"2 and {FORMAT_VERSION}; evaluate again"
        )
    try:
        for name, values in stored["replicates"].items():
            np.array(values, np.float64).reshape(-1)[0]
            float(at_path(stored, name))
        _ = stored["data"]["fingerprint"], stored["interval"]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadResults(f"{path}: is not a complete eval_results.json ({error!r}); evaluate again") from error
    return stored


def at_path(results: dict[str, Any], path: str) -> Any:
    """Return the value at a dotted path such as "verification.tar_at_far.1e-2"."""
    value: Any = results
    for key in path.split("."):
        value = value[key]
    return value
