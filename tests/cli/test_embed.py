"""`familiar embed`: where networks run."""

from pathlib import Path
from typing import Any

import pytest

from familiar.core.errors import BadBundle
from support.cli import Familiar
from support.color_album import draw_album


def test_provider_by_its_short_or_full_name(familiar: Familiar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened: list[Any] = []

    def record(*_: Any, providers: Any) -> None:
        opened.append(providers)
        raise BadBundle("not opened")

    monkeypatch.setattr("familiar.embedding.embedder.Embedder", record)
    command = ("embed", "photos", "--model", "pet-nano", "-o", tmp_path / "out.npz")
    for providers in ([], ["CUDA", "cpu"], ["tensorrt"], ["directml"], ["NewExecutionProvider"]):
        options = [word for name in providers for word in ("--provider", name)]
        assert familiar(*command, *options).err.endswith("familiar: not opened\n")
    assert opened == [
        None,
        ("CUDAExecutionProvider", "CPUExecutionProvider"),
        ("TensorrtExecutionProvider",),
        ("DmlExecutionProvider",),
        ("NewExecutionProvider",),
    ]


def test_provider_that_is_not_there(familiar: Familiar, tmp_path: Path):
    photo = draw_album(tmp_path / "album", red=1)[0]
    command = ("embed", photo, "--model", "pet-nano", "--detector", "none", "-o", tmp_path / "out.npz")
    missing = familiar(*command, "--provider", "coreml")
    assert missing.code == 1
    assert "no CoreMLExecutionProvider here" in missing.err
    assert "onnxruntime-gpu" in missing.err
    assert familiar(*command, "--provider", "cpu").code == 0
