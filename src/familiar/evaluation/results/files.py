"""Write and read `eval_results.json`."""

import json
from pathlib import Path
from typing import Any

from familiar.core.errors import BadResults
from familiar.core.files import write_atomically
from familiar.core.json_text import parse_json
from familiar.evaluation.results.document import EvaluationResults


def write_results(file: Path, results: EvaluationResults) -> None:
    """Write results as JSON, indented for people; each figure, and the replicates of each, on one line."""
    document = results.to_json()
    flat = {key: document.pop(key) for key in ("figures", "replicates")}
    text = _dump(document, indent=1).removesuffix("\n}")
    for key, rows in flat.items():
        lines = [f"  {_dump(path)}: {_dump(row)}" for path, row in rows.items()]
        text += f',\n "{key}": {{\n' + ",\n".join(lines) + "\n }"
    write_atomically(file, f"{text}\n}}\n".encode("utf-8", "backslashreplace"))


def read_results(path: Path | str) -> EvaluationResults:
    """Read `eval_results.json`.

    Args:
        path: the file, as `write_results` wrote it.

    Raises:
        BadResults: the file is missing, damaged or of another format.
    """
    path = Path(path)
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadResults(f"{path}: no results can be read from it ({error})") from error
    try:
        return EvaluationResults.from_json(document)
    except BadResults as error:
        raise BadResults(f"{path}: {error}") from error


def _dump(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
