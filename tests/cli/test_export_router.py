"""`familiar export ROUTER.json` as a user meets it. What it writes is tested in tests/export."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from familiar.core import run_files
from familiar.datasets.folders import DataSpec
from familiar.embedding.bundle import Bundle, load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.species.router import RoutedEmbedder
from familiar.embedding.species.router_file import write_router
from familiar.export import run_export as export_module
from familiar.export.gate import Gate
from familiar.export.precision import PRECISIONS
from support.cli import Familiar
from support.tiny_router import color_classifier, mosaic_bundle, save_colored

pytestmark = pytest.mark.slow


@pytest.fixture
def router(mean_color_bundle: Path, tmp_path: Path) -> Path:
    """A router of what look like two runs; the bundle of the cats is the classifier's too."""
    embedders: dict[str, Embedder] = {}
    for name in ("cat", "dog"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / run_files.RECIPE).write_text("{}")
        if name == "cat":
            shutil.copy(mean_color_bundle, folder / run_files.BUNDLE)
        else:
            mosaic_bundle(folder / run_files.BUNDLE, load_bundle(mean_color_bundle).metadata)
        embedders[name] = Embedder(folder)
    write_router(tmp_path / "r.json", RoutedEmbedder(embedders["cat"], color_classifier(), embedders))
    return tmp_path / "r.json"


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Record the options of each export of a run, which writes some other bundle."""
    calls: list[dict[str, Any]] = []
    parity = {"crops": 3, "max_difference": 0.0123, "min_cosine": 0.9, "mean_cosine": 0.95, "source": None}

    def export_run(run: Path, output: Path, **options: Any) -> Bundle:
        calls.append({"run": run, **options})
        mosaic_bundle(output, replace(load_bundle(run).metadata, parity=parity, precision="float16"), 32)
        return load_bundle(output)

    monkeypatch.setattr(export_module, "export_bundle", export_run)
    return calls


def test_copies_bundles_and_lists_them(familiar: Familiar, router: Path, tmp_path: Path):
    output = tmp_path / "shipped"
    answer = familiar("export", router, "--output", output)
    assert answer.code == 0, answer.err
    sizes = {path.name: path.stat().st_size for path in output.iterdir()}
    assert answer.out.splitlines() == [
        f"{output / 'router.json'}: {sizes['router.json']:,} bytes",
        f"{output / 'cat.onnx'}: {sizes['cat.onnx']:,} bytes in float32, for cat, the classifier",
        f"{output / 'dog.onnx'}: {sizes['dog.onnx']:,} bytes in float32, for dog",
    ]
    assert not answer.err

    document = json.loads(familiar("export", router, "--output", output, "--json").out)
    assert document["router"] == str(output / "router.json")
    assert {file["file"]: file["size_bytes"] for file in document["files"]} == sizes
    assert document["size_bytes"] == sum(sizes.values())
    _, cat, dog = document["files"]
    assert (cat["species"], cat["classifier"]) == (["cat"], True)
    assert (dog["species"], dog["classifier"]) == (["dog"], False)
    assert dog["file_id"] == load_bundle(output / "dog.onnx").file_id

    photo = save_colored(tmp_path / "cat.png", (200, 30, 30))
    moved = output.rename(tmp_path / "moved")
    assert familiar("verify", photo, photo, "--model", moved / "router.json").out.startswith("cat (")


def test_options_export_the_bundles_again(
    familiar: Familiar, router: Path, exports: list[dict[str, Any]], tmp_path: Path
):
    flags = ("--max-size", "1MB", "--max-auc-drop", "0.05", "--data", "a", "--data", "b", "--rounding-photos", "c")
    answer = familiar("export", router, "--output", tmp_path / "shipped", *flags)
    assert answer.code == 0, answer.err
    assert [call.pop("run") for call in exports] == [tmp_path / "runs" / name for name in ("cat", "dog")]
    expected = {
        "license": "Apache-2.0",
        "precisions": PRECISIONS,
        "max_bytes": 10**6,
        "gate": Gate(0.05, 0.02),
        "components": None,
        "data": DataSpec(("a", "b")),
        "rounding_photos": DataSpec(("c",)),
    }
    assert exports == [expected, expected]
    _, cat, dog, classifier = answer.out.splitlines()
    assert cat.endswith("in float16, for cat; on 3 crops within 1.2e-02 of the trained network")
    assert dog.endswith("in float16, for dog; on 3 crops within 1.2e-02 of the trained network")
    assert classifier.endswith("in float32, for the classifier")
    assert "the classifier's bundle was copied as it is" in answer.err

    exports.clear()
    flags = ("--precision", "int8", "--components", "27", "--license", "MIT")
    answer = familiar("export", router, "--output", tmp_path / "other", *flags)
    assert answer.code == 1
    assert "the bundle for cat has 3 components, not 27" in answer.err
    assert not exports
    assert familiar("export", router, "--output", tmp_path / "other", *flags[:2], *flags[4:]).code == 0
    assert {(each["precisions"], each["max_bytes"], each["license"]) for each in exports} == {(("int8",), None, "MIT")}


@pytest.mark.usefixtures("exports")
def test_wrong_usage_exits_with_2(familiar: Familiar, router: Path, tmp_path: Path):
    for option, value in (("license", "MIT"), ("data", "a"), ("max-auc-drop", "0.01"), ("rounding-photos", "a")):
        answer = familiar("export", router, "--output", tmp_path / "shipped", f"--{option}", value)
        assert answer.code == 2
        assert f"--{option} is for exporting the bundles of a router again" in " ".join(answer.err.split())
    assert not (tmp_path / "shipped").exists()


def test_error_is_one_line(familiar: Familiar, router: Path, tmp_path: Path):
    (tmp_path / "runs" / "dog" / run_files.RECIPE).unlink()
    answer = familiar("export", router, "--output", tmp_path / "shipped", "--precision", "float16", "--json")
    assert answer.code == 1
    assert not answer.out
    (line,) = answer.err.strip().splitlines()
    assert "the bundle for dog is not the model.onnx of a run folder" in line
    answer = familiar("export", tmp_path / "gone.json", "--output", tmp_path / "shipped")
    assert answer.code == 1
    assert "gone.json" in answer.err
