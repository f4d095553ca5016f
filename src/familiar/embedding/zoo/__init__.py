"""Bundles shipped with the package: each is a file `NAME.onnx` in this folder, with its model card `NAME.md`."""

from pathlib import Path

from familiar.core.errors import BadBundle

FOLDER = Path(__file__).parent


def shipped_bundles() -> dict[str, Path]:
    """Return the bundle file of each name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.onnx"))}


def model_card(name: str) -> str:
    """Read the model card of a shipped bundle: training data, results, and the groups it fails on.

    Args:
        name: one of those that `shipped_bundles` lists.

    Returns:
        The card as Markdown.

    Raises:
        BadBundle: no such bundle is shipped.
    """
    shipped = shipped_bundles()
    if name not in shipped:
        raise BadBundle(f"no shipped bundle is named {name!r}; available: {', '.join(shipped) or 'none'}")
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")
