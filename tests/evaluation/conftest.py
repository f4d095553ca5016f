from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from familiar.core.vectors import normalize
from familiar.datasets.folders import IdentityTable
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationContext
from support.color_folders import color_folder


@pytest.fixture
def colors(tmp_path: Path) -> Path:
    return color_folder(tmp_path / "colors")


MakeContext = Callable[..., EvaluationContext]


@pytest.fixture
def make_context(mean_color_bundle: Path) -> MakeContext:
    """Make contexts with embeddings around one direction per identity, of photos that do not exist."""
    embedder = Embedder(mean_color_bundle)

    def make(
        identities: int = 12, per: int = 4, dim: int = 8, noise: float = 0.5, seed: int = 0, **changed: object
    ) -> EvaluationContext:
        generator = np.random.default_rng(seed)
        labels = np.repeat(np.arange(identities), per)
        rows = generator.normal(size=(identities, dim))[labels] + noise * generator.normal(size=(len(labels), dim))
        table = IdentityTable(
            photos=tuple(Path(f"none/{label:02d}/{row}.png") for row, label in enumerate(labels.tolist())),
            labels=labels.astype(np.int64),
            names=tuple(f"none/{identity:02d}" for identity in range(identities)),
        )
        context = EvaluationContext(embedder, table, normalize(rows.astype(np.float32)), table, np.arange(len(table)))
        return replace(context, **changed)

    return make
