"""The pages of the documentation, with their tables as the code has them: `make docs` writes them into build/docs.

In a page of docs/ such a table is one line, `<!-- table: NAME -->`.
"""

import csv
import re
import shutil
from collections.abc import Callable
from dataclasses import Field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from familiar.recipes import RECIPES
from familiar.training.loss_catalog import LOSSES
from familiar.training.loss_settings import LossSettings
from support.api_pages import package_entries, package_rows, packages
from support.licenses import license_rows

ROOT = Path(__file__).parents[2]
DOCS, BUILT = ROOT / "docs", ROOT / "build" / "docs"
NETWORKS = DOCS / "reference" / "networks.csv"  # written by benchmarks/networks.py
METHODS = ("get", "post", "put", "patch", "delete")


def losses() -> list[str]:
    """Return a row for each loss: its name, its class, and its settings with their published values."""
    rows = ["| `loss.name` | class | its settings | what it is |", "|---|---|---|---|"]
    for name, declared in LOSSES.items():
        settings = declared()
        listed = ", ".join(f"`{key}` {_plain(getattr(settings, key))}" for key in _unshared(declared))
        rows.append(f"| `{name}` | `{declared.loss_class.__name__}` | {listed} | {_summary(declared)} |")
    return rows


def _unshared(declared: type[LossSettings]) -> "dict[str, Field[Any]]":
    """Return the settings that not every loss has."""
    shared = LossSettings.settings()
    return {key: field for key, field in declared.settings().items() if key not in shared}


def loss_settings() -> list[str]:
    """Return a row for each meaning of a setting: its range and the losses that have it."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for name, declared in LOSSES.items():
        for key, field in _unshared(declared).items():
            names.setdefault((key, *_described(field)), []).append(name)
    rows = ["| setting | meaning | range | losses |", "|---|---|---|---|"]
    for (key, *described), losses in sorted(names.items(), key=lambda item: item[0][0]):
        rows.append(f"| `{key}` | {' | '.join(described)} | {_code(losses)} |")
    for key, field in LossSettings.settings().items():
        rows.append(f"| `{key}` | {' | '.join(_described(field))} | all |")
    return rows


def networks() -> list[str]:
    """Return a row for each network: its sizes, and the times that were measured."""
    head, *rows = csv.reader(NETWORKS.read_text("utf-8").splitlines())
    lines = [" | ".join(head), "|".join(["---", *["--:"] * (len(head) - 1)])]
    return [f"| {line} |" for line in [*lines, *(" | ".join([f"`{name}`", *cells]) for name, *cells in rows)]]


def recipes() -> list[str]:
    """Return a row for each recipe, as `familiar recipes` describes it."""
    return [
        "| recipe | trains |",
        "|---|---|",
        *(f"| `{name}` | {_cell(make.__doc__ or '')} |" for name, make in RECIPES.items()),
    ]


def command_options() -> list[str]:
    """Return a section for each command, with a row for each argument and option."""
    from familiar.cli.main import familiar

    lines: list[str] = []
    for name, command in familiar.commands.items():
        lines += _command_section(name, command)
        if isinstance(command, click.Group):
            for below, subcommand in command.commands.items():
                lines += _command_section(f"{name} {below}", subcommand)
    return lines[1:]


def http_operations() -> list[str]:
    """Return a table for each tag of the HTTP API, with a row for each operation of its OpenAPI document."""
    by_tag: dict[str, list[str]] = {}
    document = _openapi()
    for path, operations in document["paths"].items():
        for method in METHODS:
            if operation := operations.get(method):
                request = f"{method.upper()} {path.removeprefix('/api/v1')}"
                row = f"| `{request}` | {_first_sentence(operation['description'])} "
                by_tag.setdefault((operation.get("tags") or ["other"])[0], []).append(
                    f"{row}| {_parameters(operation, document)} |"
                )
    lines: list[str] = []
    for tag, rows in by_tag.items():
        lines += ["", f"### {tag.capitalize()}", "", "| request | what it does | parameters |", "|---|---|---|", *rows]
    return lines[1:]


TABLES: dict[str, Callable[[], list[str]]] = {
    "losses": losses,
    "loss settings": loss_settings,
    "networks": networks,
    "recipes": recipes,
    "command options": command_options,
    "http api": http_operations,
    "licenses": license_rows,
    "packages": package_rows,
    "api familiar": partial(package_entries, "familiar"),
    **{f"api familiar.{name}": partial(package_entries, f"familiar.{name}") for name in packages()},
}


def with_tables(page: str) -> str:
    """Return a page with its tables in place of their names."""
    return re.sub(r"<!-- table: ([\w .]+) -->", lambda match: "\n".join(TABLES[match[1]]()), page)


def build(folder: Path = BUILT) -> None:
    """Copy the documentation, with its tables, into a folder; what was there is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    for path in folder.rglob("*.md"):
        path.write_text(with_tables(path.read_text("utf-8")), "utf-8")


def _openapi() -> dict[str, Any]:
    from familiar.web.server import _application
    from familiar.web.service import Service
    from familiar.web.settings import Settings

    with TemporaryDirectory() as folder:
        return _application(Service(Settings(gallery=Path(folder) / "album", models=("pet-nano",)))).openapi()


def _parameters(operation: dict[str, Any], document: dict[str, Any]) -> str:
    """List the query's parameters, then the properties of the body; those that are required in bold."""
    query = [
        (each["name"], bool(each.get("required"))) for each in operation.get("parameters", ()) if each["in"] == "query"
    ]
    listed = [_names(query)] if query else []
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        properties = [(name, name in schema.get("required", ())) for name in schema.get("properties", ())]
        listed.append(f"{'JSON' if kind == 'application/json' else 'form'}: {_names(properties)}")
    return "; ".join(listed)


def _names(properties: list[tuple[str, bool]]) -> str:
    return ", ".join(f"**`{name}`**" if required else f"`{name}`" for name, required in properties)


def _first_sentence(text: str) -> str:
    return _cell(re.split(r"(?<=[.:;])\s", text.strip())[0]).rstrip(".:;")


def _command_section(name: str, command: click.Command) -> list[str]:
    lines = ["", f"## {name}", "", f"`familiar {name}` - {_cell(command.get_short_help_str(limit=200)).rstrip('.')}."]
    rows = [row for parameter in command.params if (row := _parameter_row(parameter))]
    return [*lines, "", "| | | default |", "|---|---|---|", *rows] if rows else lines


def _parameter_row(parameter: click.Parameter) -> str | None:
    if isinstance(parameter, click.Argument):
        repeated = "..." if parameter.nargs == -1 else ""
        name = parameter.make_metavar(click.Context(click.Command("any"))).strip("[]{}").rstrip(".")
        return f"| `{name.replace('|', ' or ')}{repeated}` | | |"
    if not isinstance(parameter, click.Option) or parameter.hidden:
        return None
    default = parameter.default
    unset = default is None or callable(default) or "UNSET" in repr(default)
    shown = "" if unset or parameter.is_flag else str(default)
    text = _cell(parameter.help or "")
    if isinstance(parameter.type, click.Choice):
        text = f"{text} One of {_code(list(parameter.type.choices))}."
    return f"| {', '.join(f'`{each}`' for each in parameter.opts)} | {text} | {_cell(shown)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _summary(declared: type[LossSettings]) -> str:
    return " ".join((declared.__doc__ or "").split("\n\n")[0].split()).rstrip(".")


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _described(field: "Field[Any]") -> tuple[str, str]:
    """Return the meaning of a setting and its range."""
    bounds = field.metadata["range"]
    return field.metadata["meaning"], "" if bounds is None else "{:g} to {:g}".format(*bounds)


def _plain(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"(\.\d\d)\d+", r"\1", text)  # 0.3333333333333333, a third


if __name__ == "__main__":
    build()
