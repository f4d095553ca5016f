import json
from dataclasses import asdict

import pytest

from familiar.core.errors import BadRecipe, BadRun
from familiar.datasets.folders import DataSpec
from familiar.datasets.split import Split
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def begun(run):
    run.path.mkdir()
    run.recipe_json.write_text(Recipe(name="x").to_json())
    run.split_json.write_text(Split(0, ("a/1",), ("a/2",), ()).to_json())
    return run


def record(run, spec):
    run.data_json.write_text(
        json.dumps({"spec": asdict(spec), "fingerprint": "f", "train": {}, "validation": {}})
    )


def test_the_files_have_the_names_the_documents_promise(run):
    paths = [run.recipe_json, run.data_json, run.split_json, run.history_csv, run.curves_png]
    paths += [run.best, run.last, run.state, run.embedder, run.bundle]
    assert [path.name for path in paths] == [
        *("recipe.json", "data.json", "split.json", "history.csv", "curves.png"),
        *("best.safetensors", "last.safetensors", "state.pt", "embedder.safetensors", "model.onnx"),
    ]
    assert {path.parent for path in paths} == {run.path}
    assert not run.path.exists()


@pytest.mark.parametrize(
    "spec",
    [
        DataSpec(("synthetic:cats:12x4",)),
        DataSpec(("photos/Käter", "more"), ("Tom", "Jerry"), 7, 3),
        DataSpec(("photos",), ()),
    ],
)
def test_what_it_read_comes_back(begun, spec):
    record(begun, spec)
    assert begun.data_spec() == spec
    assert begun.recipe() == Recipe(name="x")
    assert begun.split().validation == ("a/2",)


def test_a_folder_that_is_no_run(run):
    for read in (run.recipe, run.data, run.data_spec, run.split):
        with pytest.raises(BadRun, match="run"):
            read()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'"text"', b"\xff\xfe", b'{"spec": {}}'])
def test_damaged_records(begun, content):
    for path, read in ((begun.data_json, begun.data_spec), (begun.split_json, begun.split)):
        path.write_bytes(content)
        with pytest.raises(BadRun, match=path.name):
            read()
    begun.recipe_json.write_bytes(content)
    with pytest.raises((BadRun, BadRecipe)):
        begun.recipe()


def test_a_record_with_a_part_missing(begun):
    record(begun, DataSpec(("photos",)))
    whole = json.loads(begun.data_json.read_text())
    begun.data_json.write_text(json.dumps({key: whole[key] for key in ("spec", "train", "validation")}))
    with pytest.raises(BadRun, match=r"data\.json"):
        begun.data()
    for spec in (
        {},
        {**whole["spec"], "sources": 3},
        {**whole["spec"], "max_photos": 0},
        {**whole["spec"], "more": 1},
    ):
        begun.data_json.write_text(json.dumps({**whole, "spec": spec}))
        with pytest.raises(BadRun, match=r"data\.json"):
            begun.data_spec()
