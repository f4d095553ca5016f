"""Bundles shipped with the package: each is a file `NAME.onnx` in this folder, with its model card `NAME.md`."""

from pathlib import Path

FOLDER = Path(__file__).parent


def shipped_bundles() -> dict[str, Path]:
    """Return the bundle file of each name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.onnx"))}


def model_card(name: str) -> str:
    """Read the model card of a shipped bundle: training data, results, and the groups it fails on."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")
