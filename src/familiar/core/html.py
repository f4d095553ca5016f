"""HTML for notebooks: self-contained, without scripts and requests, and readable on light and dark pages.

Names and paths come from anybody. They get into HTML only through `text`, and in tables through `HtmlTable.add`.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

from familiar.core.terminal_text import printable

_MAX_LETTERS = 120  # of a name or a path: longer ones would hide everything else

# Colors are those of the page, as notebooks have themes of their own. Without the style, it stays readable.
_STYLE = (
    ".familiar-view{color:inherit;font-size:13px;line-height:1.4;max-width:60rem}"
    ".familiar-view table{border-collapse:collapse;margin:.4em 0;color:inherit;font-size:inherit;"
    "width:auto;display:table}"
    ".familiar-view th,.familiar-view td{text-align:left;padding:.15em .8em .15em 0;border:0;"
    "border-bottom:1px solid #8886;background:none;color:inherit;font-weight:normal;min-width:0}"
    ".familiar-view thead th{font-weight:600}"
    ".familiar-view .familiar-number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".familiar-view p{margin:.4em 0}.familiar-view small{opacity:.75;font-size:12px}"
    ".familiar-view .familiar-tiles{display:flex;flex-wrap:wrap;gap:.6em 1em;margin:.6em 0}"
    ".familiar-view figure{margin:0;text-align:left}"
    ".familiar-view figcaption{margin:.2em 0 0;max-width:14em;overflow-wrap:anywhere}"
    ".familiar-view .familiar-faces{display:flex;gap:3px}"
    ".familiar-view .familiar-faces img,.familiar-view .familiar-missing{"
    "width:64px;height:64px;object-fit:cover;border-radius:4px;"
    "background:#8883;margin:0;display:block}"
    ".familiar-view .familiar-missing{display:flex;align-items:center;justify-content:center;text-align:center;"
    "font-size:11px;line-height:1.1;opacity:.75}"
)


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


@dataclass
class HtmlTable:
    """A table that is filled row by row.

    Attributes:
        headings: of the columns; none: there is no row of headings.
        numeric: indices of the columns that are aligned to the right.
        rows: the rows so far, as HTML.
    """

    headings: tuple[str, ...] = ()
    numeric: tuple[int, ...] = ()
    rows: list[str] = field(default_factory=list[str])

    def add(self, *cells: str) -> None:
        """Add a row.

        Args:
            *cells: any text: it is escaped.
        """
        self.rows.append(f"<tr>{''.join(self._cell('td', index, cell) for index, cell in enumerate(cells))}</tr>")

    @property
    def html(self) -> str:
        """The whole table."""
        cells = "".join(self._cell("th", index, cell) for index, cell in enumerate(self.headings))
        head = f"<thead><tr>{cells}</tr></thead>" if cells else ""
        return f"<table>{head}<tbody>{''.join(self.rows)}</tbody></table>"

    def _cell(self, tag: str, index: int, cell: str) -> str:
        numeric = ' class="familiar-number"' if index in self.numeric else ""
        return f"<{tag}{numeric}>{text(cell)}</{tag}>"


def text(value: str) -> str:
    """Escape any text, shorten it, and isolate it, so that right-to-left text does not affect what is around it.

    >>> text("<script>"), text("x" * 500)[-12:]
    ('<bdi>&lt;script&gt;</bdi>', 'xxxxx…</bdi>')
    """
    return f"<bdi>{attribute(value)}</bdi>"


def attribute(value: str) -> str:
    """Escape and shorten any text for use within the quotes of an attribute."""
    shortened = value if len(value) <= _MAX_LETTERS else f"{value[: _MAX_LETTERS - 1]}…"
    return escape(printable(shortened))


def image(jpeg: bytes, description: str) -> str:
    """Return an image with its content in it.

    Args:
        jpeg: content of a JPEG file.
        description: any text, for those who do not see the image.
    """
    encoded = base64.b64encode(jpeg).decode()
    return f'<img src="data:image/jpeg;base64,{encoded}" alt="{attribute(description)}">'


def missing_image(label: str, reason: str) -> str:
    """Return what is shown in place of an image.

    Args:
        label: a word or two, shown.
        reason: any text, shown when one points at it.
    """
    return f'<div class="familiar-missing" title="{attribute(reason)}">{text(label)}</div>'


def tile(images: Iterable[str], lines: Iterable[str]) -> str:
    """Return images side by side with lines below.

    Args:
        images: of `image` or `missing_image`.
        lines: any texts: they are escaped. All but the first are small.
    """
    first, *others = lines
    caption = text(first) + "".join(f"<br><small>{text(line)}</small>" for line in others)
    return f'<figure><div class="familiar-faces">{"".join(images)}</div><figcaption>{caption}</figcaption></figure>'


def tiles(content: Iterable[str]) -> str:
    """Return tiles side by side, in as many rows as are needed."""
    return f'<div class="familiar-tiles">{"".join(content)}</div>'


def page_fragment(*content: str) -> str:
    """Return parts below one another, with their style. It has no line breaks, so Markdown takes it as it is."""
    return f'<div class="familiar-view"><style>{_STYLE}</style>{"".join(content)}</div>'
