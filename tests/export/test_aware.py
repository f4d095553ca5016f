"""Export of a run with quantization-aware training: int8 is compared with the rounded network."""

from pathlib import Path

import pytest

from familiar.embedding.bundle import Bundle
from familiar.export.gate import Gate, gate_metrics
from familiar.export.run_export import export_bundle
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.models.quantized import round_to_8_bits
from familiar.training import loop
from familiar.training.checkpoint import load_weights
from familiar.training.fitting import fit
from familiar.training.network import build_network
from familiar.training.run import RunFolder
from familiar.training.validation import embed_dataset
from support.tiny_run import TINY, save_photos

pytestmark = pytest.mark.slow

ANY_LOSS = Gate(1.0, 1.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    photos = save_photos(tmp_path_factory.mktemp("photos") / "cats", "synthetic:cats:16x4")
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "aware")
    settings = ["quantize.aware=true", "split.validation=0.3", "model.name=nano", "budget.epochs=1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", lambda *_: None)
        fit(TINY.with_settings(settings), photos, folder.path)
    return folder


def source_auc(bundle: Bundle) -> float:
    return bundle.metadata.parity["source"]["auc"]


@pytest.mark.exhaustive
def test_only_int8_is_compared_with_rounded_network(run: RunFolder, tmp_path: Path) -> None:
    int8, plain = (
        export_bundle(run.path, tmp_path / f"{precision}.onnx", precisions=(precision,), gate=ANY_LOSS)
        for precision in ("int8", "float32")
    )
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    table = run.data_spec().read().select_identities(run.split().validation)
    read = read_table(table, run.recipe().input.preprocessing())
    photos = FaceDataset(read.table, read.crops)
    unrounded = gate_metrics(embed_dataset(network, photos), read.table.labels)
    round_to_8_bits(network)
    rounded = gate_metrics(embed_dataset(network, photos), read.table.labels)
    assert unrounded is not None
    assert rounded is not None
    assert unrounded.auc != pytest.approx(rounded.auc, abs=1e-4), "otherwise the test distinguishes nothing"
    assert source_auc(int8) == pytest.approx(rounded.auc, abs=2e-3)
    assert source_auc(plain) == pytest.approx(unrounded.auc, abs=2e-3)
    assert plain.metadata.space_id == run.space_id
    assert int8.metadata.space_id != run.space_id, "its vectors lie elsewhere"
