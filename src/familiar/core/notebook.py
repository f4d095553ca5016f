"""Values in notebooks: self-contained HTML, without scripts and requests, and readable on light and dark pages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from familiar.core.templating import render_template


@dataclass(frozen=True, repr=False)
class NotebookHtml:
    """HTML that a notebook displays when it is the last value of a cell.

    Attributes:
        html: self-contained, without scripts.
    """

    html: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"NotebookHtml({len(self.html):,} characters, which a notebook displays)"


@dataclass(frozen=True)
class NotebookImage:
    """An image, or what is shown in its place.

    Attributes:
        description: of the image for those who do not see it, or why there is none.
        jpeg: content of a JPEG file; None: there is no image.
        label: a word or two in place of the image.
    """

    description: str
    jpeg: bytes | None = None
    label: str = ""


@dataclass(frozen=True)
class NotebookTile:
    """Images side by side with lines of text below; all lines but the first are small."""

    images: tuple[NotebookImage, ...]
    lines: tuple[str, ...]


def notebook_html(folder: Path, name: str, /, **values: Any) -> str:
    """Render a template that extends `notebook.html`.

    Args:
        folder: of the templates.
        name: of the template's file.
        values: by the names that the template has for them.

    Returns:
        HTML without line breaks, so that Markdown takes it as it is.
    """
    return "".join(line.strip() for line in render_template(folder, name, **values).splitlines())
