"""The pages about networks and recipes list every one, with its sizes."""

import re
from pathlib import Path

import pytest

from familiar.models.catalog import NETWORKS
from familiar.models.heads import HEADS
from familiar.recipes import recipe_named
from familiar.training.recipe import Recipe
from support.docs_tables import with_tables
from support.tiers import all_exhaustive_but

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (DOCS / "networks.md").read_text()
RECIPE_PAGE = (DOCS / "recipes.md").read_text()
CELLS = [line.strip("| ").split(" | ") for line in with_tables(PAGE).splitlines()]
ROWS = {row[0].strip("`"): row for row in CELLS if len(row) == 11}


@pytest.mark.slow
@pytest.mark.parametrize("name", all_exhaustive_but(["nano", "simple_v2", "facenet_nns2", "digits"], NETWORKS))
def test_table_lists_every_network_with_its_sizes(name: str) -> None:
    spec, size = NETWORKS[name], NETWORKS[name].size()
    _, input_px, dim, trained, total, flops, whole, half, *timings = ROWS[name]
    assert (input_px, dim) == (str(spec.input_px), str(spec.embedding_dim))
    assert (trained, total) == (f"{size.trainable:,}", f"{size.total:,}")
    assert flops == f"{size.flops / 1e6:,.1f} M"
    assert bytes_of(half) < bytes_of(whole)
    assert bytes_of(half) == pytest.approx(2 * (size.total - spec.constants), rel=0.12)
    assert len(timings) == 3
    assert all(float(number.replace(",", "")) > 0 for number in timings)


def bytes_of(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"KB": 1e3, "MB": 1e6}[unit]


def test_table_lists_only_known_networks() -> None:
    assert ROWS.keys() - {"network"} <= NETWORKS.keys()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_documented(name: str) -> None:
    assert re.search(rf"`{name}`", PAGE)


@pytest.mark.parametrize("name", HEADS)
def test_every_head_is_documented(name: str) -> None:
    assert re.search(rf"^\| .*`{name}`", PAGE, flags=re.MULTILINE)


def test_every_documented_setting_parses() -> None:
    shown = re.findall(r"--recipe (\S+)((?:.*?--set \S+)*)", RECIPE_PAGE)
    assert len(shown) >= 3
    for name, rest in shown:
        recipe_named(name).with_settings(re.findall(r"--set ([^\s`]+)", rest))
    changes = re.findall(r"(?:--set |`)((?:model|sampler)\.\w+=[^\s`]+)", PAGE)
    assert len(changes) >= 5
    for change in changes:
        Recipe("any").with_settings([change])
