"""Write and read `eval_results.json`."""

import json
from pathlib import Path

from familiar.core.errors import BadResults
from familiar.core.files import write_atomically
from familiar.core.json_text import parse_json
from familiar.evaluation.results.document import EvaluationResults


def write_results(file: Path, results: EvaluationResults) -> None:
    """Write results as JSON: the metrics indented for people, then the replicates of each metric on one line."""
    text = json.dumps(results.to_json(with_replicates=False), indent=1, ensure_ascii=False, allow_nan=False)
    lines = [f"  {json.dumps(path)}: {json.dumps(values)}" for path, values in results.replicates.items()]
    text = text[: text.rindex("\n}")] + ',\n "replicates": {\n' + ",\n".join(lines) + "\n }\n}\n"
    write_atomically(file, text.encode("utf-8", "backslashreplace"))


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
