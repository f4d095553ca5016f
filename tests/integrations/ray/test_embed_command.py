"""`familiar embed --engine ray`: what the command hands over to Ray."""

from pathlib import Path
from typing import Any

import pytest

from familiar.integrations.ray import engine
from familiar.integrations.ray.engine import EmbeddedParts
from support.cli import Familiar


def test_urls_reach_the_engine_as_they_are(familiar: Familiar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sources: list[str] = []

    def record(_: Any, photos: tuple[str, ...], *__: Any, **___: Any) -> EmbeddedParts:
        sources.extend(photos)
        return EmbeddedParts(2, 3, 1, known=4, changed=0)

    monkeypatch.setattr(engine, "embed_with_ray", record)
    output = tmp_path / "out"
    done = familiar("embed", "s3://bucket/cats", "photos", "--model", "pet-nano", "--engine", "ray", "-o", output)
    assert done.code == 0, done.err
    assert sources == ["s3://bucket/cats", "photos"]
    assert done.out == f"{output}: 3 faces in 2 photos, 1 without an embedding; 4 embedded before\n"
