"""Report section: the map of the embeddings."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.charts import side_by_side
from familiar.evaluation.report.examples import Examples


def embedding_map(_: Mapping[str, Any], __: Examples, charts: Mapping[str, str]) -> str:
    """Render the map."""
    return side_by_side(charts, "map")
