"""Tables of the documentation that are written from the code: `python -m support.docs_tables`, run in `tests/`.

In a page such a table stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

import re
from pathlib import Path

from familiar.training.loss_catalog import LOSSES
from familiar.training.loss_settings import Documented, LossSettings

DOCS = Path(__file__).parents[2] / "docs"


def losses() -> list[str]:
    """Return a row for each loss: its name, its class, and its settings with their published values."""
    rows = ["| `loss.name` | Python | its settings | what it is |", "|---|---|---|---|"]
    for name, declared in LOSSES.items():
        settings = declared()
        listed = ", ".join(f"`{key}` {_plain(getattr(settings, key))}" for key in settings.own_settings())
        rows.append(f"| `{name}` | `{settings.builds}` | {listed} | {_summary(declared)} |")
    return rows


def loss_settings() -> list[str]:
    """Return a row for each meaning of a setting: its range and the losses that have it."""
    names: dict[tuple[str, Documented], list[str]] = {}
    for name, declared in LOSSES.items():
        for key, documented in declared.own_settings().items():
            names.setdefault((key, documented), []).append(name)
    rows = ["| setting | meaning | range | losses |", "|---|---|---|---|"]
    for (key, documented), losses in sorted(names.items(), key=lambda item: item[0][0]):
        rows.append(
            f"| `{key}` | {documented.meaning} | {_range(documented)} | {', '.join(f'`{n}`' for n in losses)} |"
        )
    for key, documented in LossSettings.settings().items():
        rows.append(f"| `{key}` | {documented.meaning} | {_range(documented)} | all |")
    return rows


TABLES = {"losses": losses, "loss settings": loss_settings}


def with_tables(page: str) -> str:
    """Return a page with its tables as the code has them now."""

    def table(match: re.Match[str]) -> str:
        rows = "\n".join(TABLES[match[1]]())
        return f"<!-- table: {match[1]} -->\n\n{rows}\n\n<!-- end of table -->"

    return re.sub(r"<!-- table: ([\w ]+) -->.*?<!-- end of table -->", table, page, flags=re.DOTALL)


def _summary(declared: type[LossSettings]) -> str:
    return " ".join((declared.__doc__ or "").split("\n\n")[0].split()).rstrip(".")


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _range(documented: Documented) -> str:
    return "" if documented.range is None else "{:g} to {:g}".format(*documented.range)


def _plain(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"(\.\d\d)\d+", r"\1", text)  # 0.3333333333333333, a third


def main() -> None:
    """Write the tables into every page that has one."""
    for path in sorted(DOCS.rglob("*.md")):
        page = path.read_text()
        if (updated := with_tables(page)) != page:
            path.write_text(updated)
            print(path.relative_to(DOCS))


if __name__ == "__main__":
    main()
