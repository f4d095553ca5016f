"""`familiar export` as a user meets it. What it writes is tested in tests/export."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from torch import nn

from familiar.cli.commands import export as command
from familiar.core.errors import GateRefused, TooLarge
from familiar.datasets.folders import DataSpec
from familiar.detection.heads import NETWORK_FILE
from familiar.embedding.bundle import Bundle, load_bundle, resolve_model
from familiar.export import run_export as export_module
from familiar.export.gate import Gate, GateMetrics
from familiar.export.onnx import onnx_bytes
from familiar.export.precision import PRECISIONS
from familiar.training import loop
from familiar.training.fitting import fit
from familiar.training.run import RunFolder
from support.cli import Answer, Familiar
from support.color_folders import color_folder
from support.tiny_run import TINY

pytestmark = pytest.mark.slow

SETTINGS = ["model.name=simple_v2", "model.blocks=3", "split.validation=0.4", "budget.epochs=1"]
BEFORE = GateMetrics(0.98, 0.05, 0.9, 0.96, {"1e-2": None, "1e-3": None, "1e-4": None})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Exported by torch once and not in every test, which takes seconds."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "colors")
    photos = color_folder(tmp_path_factory.mktemp("photos") / "people", photos=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", lambda *_: None)
        fit(TINY.with_settings(SETTINGS), DataSpec((str(photos),)), folder.path)
        made: list[bytes] = []

        def once(network: nn.Module, size_px: int) -> bytes:
            made[:] = made or [onnx_bytes(network, size_px)]
            return made[0]

        patch.setattr(export_module, "onnx_bytes", once)
        yield folder.path


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch, mean_color_bundle: Path) -> list[dict[str, Any]]:
    """Record the arguments of each export instead of exporting."""
    calls: list[dict[str, Any]] = []
    bundle = load_bundle(mean_color_bundle)
    parity = {"crops": 3, "max_difference": 0.0123, "min_cosine": 0.9, "mean_cosine": 0.95, "source": None}
    bundle = replace(bundle, metadata=replace(bundle.metadata, parity=parity))

    def export_run(*arguments: Any) -> Bundle:
        names = ("run", "output", "data", "license", "precisions", "max_bytes", "gate", "rounding_photos", "components")
        names += ("fixed_batch",)
        calls.append(dict(zip(names, arguments, strict=True)))
        return bundle

    monkeypatch.setattr(export_module, "export_bundle", export_run)
    return calls


def assert_refused(answer: Answer, *texts: str) -> None:
    assert answer.code == 1, answer.err
    assert not answer.out
    (line,) = answer.err.strip().splitlines()
    assert line.startswith("familiar: ")
    for text in texts:
        assert text in line


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("308KB", 308_000),
        ("308kb", 308_000),
        ("308 KB", 308_000),
        ("2MiB", 2_097_152),
        ("2mib", 2_097_152),
        ("1.5 MB", 1_500_000),
        ("0.3005KB", 300),
        ("300KiB", 307_200),
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("308000", 308_000),
        ("17B", 17),
        ("0", 0),
    ],
)
def test_accepts_max_size_in_bytes_or_with_unit(
    familiar: Familiar, exports: list[dict[str, Any]], written: str, count: int
):
    assert familiar("export", "run", "-o", "out.onnx", "--max-size", written).code == 0
    assert exports[0]["max_bytes"] == count
    assert exports[0]["precisions"] == PRECISIONS == command.PRECISIONS


@pytest.mark.parametrize(
    "nonsense",
    [
        "small",
        "308XB",
        "KB",
        "-5KB",
        "1.2.3MB",
        ".",
        "3,5MB",
        "1e6",
        "",
        "∞",
        "３KB",
        "3\u212ab",
        "nan",
        "0x10",
    ],
)
def test_rejects_invalid_max_size(familiar: Familiar, exports: list[dict[str, Any]], nonsense: str):
    answer = familiar("export", "run", "-o", "out.onnx", "--max-size", nonsense)
    assert answer.code == 2
    assert f"{nonsense!r} is not a size; write it as 308KB, 2MiB or 308000" in answer.err
    assert not exports


def test_accepts_very_large_max_size(familiar: Familiar, exports: list[dict[str, Any]]):
    assert familiar("export", "run", "-o", "out.onnx", "--max-size", "9" * 400 + "GB").code == 0
    assert exports[0]["max_bytes"] > 10**400


def test_options_and_defaults_are_passed_to_export(familiar: Familiar, exports: list[dict[str, Any]]):
    assert familiar("export", "run", "-o", "out.onnx").code == 0
    plain = exports.pop()
    assert (plain["run"], plain["output"]) == (Path("run"), Path("out.onnx"))
    assert (plain["data"], plain["license"]) == (None, export_module.UNKNOWN_LICENSE)
    assert (plain["precisions"], plain["max_bytes"], plain["gate"]) == (("float32",), None, Gate(0.01, 0.02))
    flags = ("--precision", "mixed", "--max-size", "1MB", "--max-auc-drop", "0.05", "--max-recall-drop", "1")
    assert familiar("export", "run", "-o", "o", "--data", "a", "--data", "b", "--license", "MIT", *flags).code == 0
    chosen = exports.pop()
    assert (chosen["data"], chosen["license"]) == (DataSpec(("a", "b")), "MIT")
    assert (chosen["precisions"], chosen["max_bytes"], chosen["gate"]) == (("mixed",), 10**6, Gate(0.05, 1))


@pytest.mark.parametrize(
    "wrong",
    [
        ("run",),
        ("-o", "out.onnx"),
        ("run", "-o", "out.onnx", "--precision", "int4"),
        ("run", "-o", "out.onnx", "--max-auc-drop", "1.1"),
        ("run", "-o", "out.onnx", "--max-recall-drop", "-0.1"),
        ("run", "-o", "out.onnx", "--max-auc-drop", "a little"),
    ],
)
def test_wrong_usage_exits_with_2(familiar: Familiar, exports: list[dict[str, Any]], wrong: tuple[str, ...]):
    assert familiar("export", *wrong).code == 2
    assert not exports


def test_help_shows_examples_precisions_and_defaults(familiar: Familiar):
    help_text = familiar("export", "--help").out
    assert "Example:\n    familiar export runs/cats --output cats.onnx --precision int8-weights\n" in help_text
    assert "    familiar export runs/nano --output nano.onnx --max-size 308KB\n" in help_text
    assert "[float32|float16|int8-weights|int4-weights|mixed|int8]" in help_text
    for default in ("[default: float32]", "[default: 0.01;", "[default: 0.02;"):
        assert default in " ".join(help_text.split())


@pytest.mark.usefixtures("exports")
def test_without_pairs_reports_only_parity(familiar: Familiar):
    answer = familiar("export", "run", "-o", "out.onnx")
    assert answer.out.endswith(" bytes in float32; on 3 crops within 1.2e-02 of the trained network\n")
    assert len(answer.out.splitlines()) == 1


@pytest.mark.parametrize("error", [GateRefused, TooLarge])
def test_export_error_is_one_line(familiar: Familiar, monkeypatch: pytest.MonkeyPatch, error: type[Exception]):
    def export_run(*_: Any) -> Bundle:
        raise error("what was lost; nothing was written")

    monkeypatch.setattr(export_module, "export_bundle", export_run)
    assert_refused(familiar("export", "run", "-o", "out.onnx", "--json"), "what was lost; nothing was written")


@pytest.mark.exhaustive
def test_reports_size_parity_auc_and_recall_in_one_line(familiar: Familiar, run: Path, tmp_path: Path):
    output = tmp_path / "people.onnx"
    loose = ("--max-auc-drop", "1", "--max-recall-drop", "1")
    answer = familiar("export", run, "-o", output, "--precision", "int8-weights", *loose)
    assert answer.code == 0, answer.err
    metadata = load_bundle(output).metadata
    before, after, parity = metadata.parity["source"], metadata.results, metadata.parity
    assert answer.out == (
        f"{output}: {output.stat().st_size:,} bytes in int8-weights; on 50 crops within "
        f"{parity['max_difference']:.1e} of the trained network, mean cosine {parity['mean_cosine']:.4f}; "
        f"ROC AUC {before['auc']:.4f} -> {after['auc']:.4f}, "
        f"recall@1 {before['recall_at_1']:.4f} -> {after['recall_at_1']:.4f}\n"
    )
    assert not answer.err, "nobody has to read what ONNX Runtime thinks of it"


@pytest.mark.exhaustive
def test_json_matches_bundle_metadata(familiar: Familiar, run: Path, tmp_path: Path):
    output = tmp_path / "people.onnx"
    flags = ("--max-auc-drop", "1", "--max-recall-drop", "1", "--license", "MIT", "--json")
    answer = familiar("export", run, "-o", output, "--precision", "int8", *flags)
    assert answer.code == 0, answer.err
    bundle = load_bundle(output)
    assert json.loads(answer.out) == {
        "bundle": str(output),
        "size_bytes": output.stat().st_size,
        "precision": "int8",
        "embedding_dim": bundle.metadata.embedding_dim,
        "file_id": bundle.file_id,
        "space_id": bundle.metadata.space_id,
        "parity": bundle.metadata.parity,
        "results": bundle.metadata.results,
    }
    assert bundle.metadata.license == "MIT"
    assert not answer.err


def test_max_size_selects_most_precise_bundle_that_fits(familiar: Familiar, run: Path, tmp_path: Path):
    output = tmp_path / "people.onnx"
    assert familiar("export", run, "-o", output).code == 0
    whole = output.stat().st_size
    answer = familiar("export", run, "-o", output, "--max-size", f"{whole - 1}")
    assert answer.code == 0, answer.err
    assert load_bundle(output).metadata.precision == "float16"
    assert output.stat().st_size < 0.6 * whole
    content = output.read_bytes()
    answer = familiar("export", run, "-o", output, "--precision", "float16", "--max-size", "1KB")
    assert_refused(
        answer, f"the smallest bundle has {len(content):,} bytes (in float16), more than the 1,000 asked for"
    )
    assert output.read_bytes() == content


def test_rejects_bundle_beyond_max_auc_drop(
    familiar: Familiar, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    results = iter([BEFORE, replace(BEFORE, auc=0.96)] * 2)
    monkeypatch.setattr(export_module, "gate_metrics", lambda *_: next(results))
    output = tmp_path / "people.onnx"
    answer = familiar("export", run, "-o", output, "--precision", "float16")
    assert_refused(answer, f"{run} in float16 loses too much: ROC AUC 0.9800 -> 0.9600", "--max-auc-drop")
    assert not output.exists()
    answer = familiar("export", run, "-o", output, "--precision", "float16", "--max-auc-drop", "0.02")
    assert answer.code == 0
    assert answer.out.endswith("ROC AUC 0.9800 -> 0.9600, recall@1 0.9600 -> 0.9600\n")
    assert output.exists()


@pytest.mark.parametrize("name", ["person-mobile", "pet-nano", "heads"])
def test_shipped_network_is_copied_as_it_is(familiar: Familiar, tmp_path: Path, name: str):
    output = tmp_path / "new" / "copy.onnx"
    answer = familiar("export", name, "--output", str(output))
    assert answer.code == 0
    shipped = NETWORK_FILE if name == "heads" else resolve_model(name)
    assert output.read_bytes() == shipped.read_bytes()
    assert answer.out.endswith(f", {name} as it is shipped\n")
    described = json.loads(familiar("export", name, "--output", str(output), "--json").out)
    assert described == {"bundle": str(output), "size_bytes": shipped.stat().st_size}


def test_shipped_bundle_takes_no_settings_of_runs(familiar: Familiar, tmp_path: Path):
    output = tmp_path / "copy.onnx"
    answer = familiar("export", "person-mobile", "-o", str(output), "--max-size", "1MB", "--license", "MIT")
    assert answer.code == 2
    assert "person-mobile is no run: leave out --max-size, --license" in answer.err
    assert not output.exists()


@pytest.mark.parametrize("from_copy", [False, True])
def test_bundle_is_changed_for_phones(familiar: Familiar, tmp_path: Path, from_copy: bool):
    model, output = "person-nano", tmp_path / "new" / "phone.onnx"
    if from_copy:
        model = str(tmp_path / "copy.onnx")
        Path(model).write_bytes(resolve_model("person-nano").read_bytes())
    answer = familiar("export", model, "--output", str(output), "--fixed-batch", "1")
    assert answer.out == f"{output}: {output.stat().st_size:,} bytes, {model} with a batch size of 1\n"
    assert load_bundle(output).metadata.space == load_bundle(model).metadata.space


def test_run_is_exported_for_phones(familiar: Familiar, run: Path, tmp_path: Path):
    output = tmp_path / "phone.onnx"
    loose = ("--max-auc-drop", "1", "--max-recall-drop", "1")
    assert familiar("export", str(run), "-o", str(output), "--fixed-batch", "2", *loose).code == 0
    taken = onnx.load(output).graph.input[0].type.tensor_type.shape.dim[0]
    assert taken.dim_value == 2
    refused = familiar("export", str(run), "-o", str(output), "--fixed-batch", "2", "--precision", "int8", *loose)
    assert refused.code == 1
    assert "export the run with --precision float16 or int8-weights" in refused.err


def test_size_for_phones_excludes_what_computes_in_8_bits(familiar: Familiar, exports: list[dict[str, Any]]):
    assert familiar("export", "run", "-o", "out.onnx", "--max-size", "1MB", "--fixed-batch", "1").code == 0
    assert exports[0]["precisions"] == ("float32", "float16", "int8-weights")


def test_bundle_without_fixed_batch_has_nothing_to_export(familiar: Familiar, tmp_path: Path):
    bundle = tmp_path / "copy.onnx"
    bundle.write_bytes(resolve_model("person-nano").read_bytes())
    answer = familiar("export", str(bundle), "-o", str(tmp_path / "out.onnx"))
    assert answer.code == 2
    assert "is a bundle already; with --fixed-batch 1 it is changed for phones" in answer.err


def test_run_named_like_a_shipped_bundle_is_exported(
    familiar: Familiar, exports: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("pet-nano").mkdir()
    assert familiar("export", "pet-nano", "-o", "out.onnx").code == 0
    assert exports[0]["run"] == Path("pet-nano")
