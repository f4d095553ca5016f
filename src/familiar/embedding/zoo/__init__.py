"""The bundles that come with the package: each is a file `NAME.onnx` here, with its model card `NAME.md` beside it."""

from pathlib import Path

FOLDER = Path(__file__).parent


def shipped_bundles() -> dict[str, Path]:
    """The bundle file of each name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.onnx"))}


def model_card(name: str) -> str:
    """The model card of a shipped bundle: what it was trained on, how good it is, and who it fails on."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")
