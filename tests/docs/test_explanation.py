"""The Python of docs/explanation/clustering.md and docs/explanation/export.md runs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from familiar.core.vectors import normalize

if TYPE_CHECKING:  # it imports torch
    from familiar.training.run import RunFolder

PAGES = Path(__file__).parents[2] / "docs" / "explanation"


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (PAGES / name).read_text(), flags=re.DOTALL)


def photos_of_two_individuals(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], count)
    noise = 0.1 * rng.standard_normal((len(labels), 8))
    return normalize((np.eye(8)[labels] + noise).astype(np.float32)), labels


def test_clustering_examples_find_both_individuals() -> None:
    embeddings, labels = photos_of_two_individuals(6)
    seen: dict[str, Any] = {"embeddings": embeddings, "labels": labels}
    cluster, threshold = blocks("clustering.md")
    exec(cluster, seen)
    assert np.array_equal(seen["clusters"], labels)
    exec(threshold, seen)
    assert seen["score"] == pytest.approx(1)


@pytest.mark.slow
def test_export_example_opens_a_run_with_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_run: "RunFolder"
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(shared_run.path)
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {}
    (block,) = blocks("export.md")
    exec(block, seen)
    assert seen["embedder"].metadata.embedding_dim > 0
