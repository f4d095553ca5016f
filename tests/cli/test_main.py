"""The command line as a user meets it: exit codes, one clear line for each expected failure, JSON that parses."""

import json
import re
import shlex
from pathlib import Path

import cv2
import numpy as np
import pytest

from familiar.cli import main
from familiar.core.errors import TrainingFailed
from familiar.core.types import Photo
from familiar.photos.decoding import save_photo
from support.cli import Answer, Familiar

pytestmark = pytest.mark.slow

TINY_SETTINGS = (
    "budget.epochs=3 input.size_px=32 input.resize_px=32 split.test=0.1 sampler.batch_size=8 "
    "model.embedding_dim=16 model.name=simple_v2 model.blocks=3"  # which exports in a second
)
TINY = ["--recipe", "quickstart", *(word for setting in TINY_SETTINGS.split() for word in ("--set", setting))]


@pytest.fixture
def colors(tmp_path: Path) -> Path:
    """Twelve identities of four photos, each of a color of its own, told apart by their mean."""
    root = tmp_path / "colors"
    generator = np.random.default_rng(0)
    for identity in range(12):
        base = generator.integers(20, 230, 3)
        folder = root / f"id {identity:02d}"
        folder.mkdir(parents=True)
        for photo in range(4):
            pixels = np.clip(base + generator.normal(0, 12, (40, 40, 3)), 0, 255).astype(np.uint8)
            save_photo(Photo(pixels, "drawn", (40, 40)), folder / f"{photo}.png")
    return root


def assert_fails(answer: Answer, *texts: str) -> None:
    assert answer.code == 1, answer.err
    *_, line = answer.err.strip().splitlines()
    assert line.startswith("familiar: ")
    assert "Traceback" not in answer.err
    for text in texts:
        assert text in line


def test_help_lists_every_command_with_an_example(familiar: Familiar):
    shown = familiar("--help")
    assert shown.code == 0
    for command in main.COMMANDS:
        assert f"  {command.name} " in shown.out
        answer = familiar(command.name, "--help")
        assert answer.code == 0
        assert f"Example:\n    familiar {command.name}" in answer.out


def test_wrong_usage_exits_with_2(familiar: Familiar):
    assert familiar("no-such-command").code == 2
    assert familiar("train").code == 2
    assert familiar("embed", "x", "--model", "y").code == 2


def test_recipes_lists_names_and_settings(familiar: Familiar):
    assert "pet-mobile" in familiar("recipes").out
    assert json.loads(familiar("recipes", "--json").out)["pet-mobile"]["loss"]["scale"] == 32.0


def test_inspect_counts_identities_photos_and_unreadable_files(familiar: Familiar, colors: Path):
    (colors / "id 00" / "fake.jpg").write_text("text")
    document = json.loads(familiar("inspect", colors, "--json").out)
    assert (document["identities"], document["photos"], document["width_px"]) == (12, 49, [40, 40.0, 40])
    assert "fake.jpg" in document["unreadable"][0]
    assert "49 photos of 12 identities" in familiar("inspect", colors).out


def test_left_out_folder_is_not_trained_on(familiar: Familiar, colors: Path, tmp_path: Path):
    run = tmp_path / "run"
    trained = familiar("train", colors, "synthetic:cats:12x4", "--leave-out", "synthetic:cats", "--output", run, *TINY)
    assert f"familiar evaluate {run} synthetic:cats:12x4" in trained.out
    data = json.loads((run / "data.json").read_text())
    assert set(data["train"]) == {colors.name}
    assert data["spec"]["leave_out"] == ["synthetic:cats"]
    on_left_out = familiar(
        "evaluate", run, "synthetic:cats:12x4", "--output", tmp_path / "report", "--suite", "retrieval"
    )
    assert "trained on" not in on_left_out.err
    known = familiar("evaluate", run, colors, "--output", tmp_path / "report", "--suite", "retrieval")
    assert f"warning: the model was trained on photos of {colors.name};" in known.err
    wrong = familiar("train", colors, "--leave-out", "dogs", "--output", tmp_path / "wrong", *TINY)
    assert wrong.code == 1
    assert "cannot leave out dogs" in wrong.err


def test_train_evaluate_verify_and_export_work_in_sequence(familiar: Familiar, colors: Path, tmp_path: Path):
    run, report = tmp_path / "run", tmp_path / "report"
    (colors / "id 03" / "fake.jpg").write_text("text")
    trained = familiar("train", colors, "--output", run, *TINY, "--json")
    assert trained.code == 0, trained.err
    summary = json.loads(trained.out)
    assert (summary["epochs"], summary["skipped_photos"], summary["stopped"]) == (3, 1, "finished")
    expected = {"recipe.json", "data.json", "split.json", "history.csv", "steps.csv", "curves.png", "best.safetensors"}
    expected |= {"last.safetensors", "state.pt", "embedder.safetensors", "model.onnx"}
    assert {path.name for path in run.iterdir()} == expected

    evaluated = familiar("evaluate", run, colors, "--output", report, "--suite", "verification")
    assert evaluated.code == 0, evaluated.err
    assert "(test)" in evaluated.out
    results = json.loads((report / "eval_results.json").read_text())
    assert results["data"]["split"] == "test"
    assert results["data"]["identities_seen_in_training"] == 0
    assert (report / "report.html").is_file()

    everything = familiar(
        "evaluate", run, colors, "--output", report, "--split", "all", "--suite", "retrieval", "--json"
    )
    whole = json.loads(everything.out)
    assert whole["data"]["identities"] == 12
    assert whole["data"]["identities_seen_in_training"] == 8
    assert {path.partition(".")[0] for path in whole["figures"]} == {"retrieval"}

    photos = sorted((colors / "id 00").glob("*.png"))
    verified = familiar("verify", *photos[:2], "--model", run, "--json")
    answer = json.loads(verified.out)
    assert set(answer) == {"similarity", "probability", "same", "threshold", "faces", "face_counts"}
    assert answer["faces"] == [1, 1]

    again = familiar("export", run, "--output", tmp_path / "again.onnx", "--json")
    assert json.loads(again.out)["space_id"] == whole["model"]["space_id"]
    assert (tmp_path / "again.onnx").read_bytes() == (run / "model.onnx").read_bytes()

    assert_fails(familiar("train", colors, "--output", run, *TINY), "holds a run already", "--resume")


def test_embed_writes_unit_embeddings_and_lists_skipped_files(
    familiar: Familiar, colors: Path, mean_color_bundle: Path, tmp_path: Path
):
    (colors / "id 01" / "fake.png").write_text("text")
    done = familiar("embed", colors, "--model", mean_color_bundle, "--output", tmp_path / "v.npz", "--json")
    summary = json.loads(done.out)
    assert summary["photos"] == 48
    assert "fake.png" in summary["skipped"][0]
    assert "fake.png" in done.err
    with np.load(tmp_path / "v.npz") as stored:
        assert stored["embeddings"].dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(stored["embeddings"], axis=1), 1, atol=1e-5)
        assert len(stored["paths"]) == 48
        assert str(stored["space_id"]) == "mean-color"


def test_train_without_published_weights_names_the_command_that_works(
    familiar: Familiar, colors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def no_connection(*_arguments: object, **_options: object) -> None:
        raise ConnectionError

    monkeypatch.setattr("familiar.models.weights.get_session", no_connection)
    monkeypatch.setattr("familiar.models.backbones.TimmTrunk.download", no_connection)
    arguments = ["train", str(colors), "--output", str(tmp_path / "run")]
    answer = familiar(*arguments)
    command = answer.err.strip().partition("This works without a download: familiar ")[2]
    assert answer.code == 1
    assert shlex.split(command)[: len(arguments)] == arguments
    assert "--set model.initial_weights=none --set model.name=nano" in command
    shortened = [*shlex.split(command), "--set", "budget.epochs=1"]
    assert familiar(*shortened).code == 0


def test_train_rejects_unusable_data(familiar: Familiar, colors: Path, tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_fails(familiar("train", empty, "--output", tmp_path / "r", *TINY), "empty", "IDENTITY/PHOTO")
    assert_fails(familiar("train", tmp_path / "gone", "--output", tmp_path / "r", *TINY), "gone")
    single = tmp_path / "single"
    single.mkdir()
    (colors / "id 00").rename(single / "only")
    assert_fails(familiar("train", single, "--output", tmp_path / "r", *TINY), "1 identities are too few")
    fakes = tmp_path / "fakes"
    for identity in range(8):
        (fakes / str(identity)).mkdir(parents=True)
        (fakes / str(identity) / "a.jpg").write_text("text")
    answer = familiar("train", fakes, "--output", tmp_path / "r", *TINY)
    assert_fails(answer, "none of the 8 photos can be read")
    assert not (tmp_path / "r").exists()


def test_train_rejects_invalid_settings(familiar: Familiar, colors: Path, tmp_path: Path):
    run = tmp_path / "r"
    assert_fails(familiar("train", colors, "-o", run, "--set", "optimizer.learning_rate=1"), "optimizer.lr")
    assert_fails(familiar("train", colors, "-o", run, "--set", "budget.epochs=many"), "budget.epochs", "many")
    assert_fails(familiar("train", colors, "-o", run, "--recipe", "petmobile"), "pet-mobile")
    assert_fails(familiar("train", colors, "-o", run, "--identities", tmp_path / "none.txt"), "none.txt")
    weights = tmp_path / "weights.npz"
    weights.write_bytes(b"garbage")
    assert_fails(familiar("train", colors, "-o", run, "--set", f"model.initial_weights={weights}"), "weights.npz")
    assert not run.exists()


def test_failed_training_exits_with_3(
    familiar: Familiar, colors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """So that a script can tell what it may try again from what it may not."""

    def collapse(*_: object, **__: object) -> None:
        raise TrainingFailed("all embeddings fell on one point")

    monkeypatch.setattr("familiar.training.fitting.fit", collapse)
    answer = familiar("train", colors, "-o", tmp_path / "r", *TINY)
    assert answer.code == main.TRAINING_FAILED == 3
    assert answer.err.strip().splitlines()[-1] == "familiar: all embeddings fell on one point"


def test_rejects_missing_or_damaged_models_photos_and_detectors(
    familiar: Familiar, colors: Path, mean_color_bundle: Path, tmp_path: Path
):
    photo = next((colors / "id 00").iterdir())
    content = bytearray(mean_color_bundle.read_bytes())
    content[len(content) // 2] ^= 1
    flipped = tmp_path / "flipped.onnx"
    flipped.write_bytes(content)
    assert_fails(familiar("verify", photo, photo, "--model", flipped), "flipped.onnx", "again")
    assert_fails(familiar("verify", photo, photo, "--model", tmp_path / "gone.onnx"), "gone.onnx")
    assert_fails(familiar("verify", photo, tmp_path / "gone.png", "--model", mean_color_bundle), "gone.png")
    assert_fails(familiar("evaluate", mean_color_bundle, tmp_path / "gone", "-o", tmp_path / "e"), "gone")
    answer = familiar("verify", photo, photo, "--model", mean_color_bundle, "--detector", "dog-nose")
    assert_fails(answer, "dog-nose", "yunet")


def test_error_message_is_one_line_for_any_file_name(familiar: Familiar, mean_color_bundle: Path, tmp_path: Path):
    odd = tmp_path / "a\nb 🐈 «قطة».png"
    odd.write_text("text")
    answer = familiar("verify", odd, odd, "--model", mean_color_bundle)
    assert_fails(answer, "🐈")
    assert len(answer.err.strip().splitlines()) == 1


def test_embed_crops_by_detector_and_fails_without_detection(
    familiar: Familiar, mean_color_bundle: Path, tmp_path: Path
):
    wide = np.zeros((60, 180, 3), np.uint8)
    wide[:, 60:120] = (0, 0, 200)
    path = tmp_path / "wide.png"
    cv2.imwrite(str(path), wide[..., ::-1])
    answer = familiar(
        "embed", path, "--model", mean_color_bundle, "--detector", "center", "--output", tmp_path / "v.npz"
    )
    assert answer.code == 0, answer.err
    with np.load(tmp_path / "v.npz") as stored:
        np.testing.assert_allclose(stored["embeddings"], [[0, 0, 1]], atol=1e-6)
    lost = familiar("embed", path, "--model", mean_color_bundle, "--detector", "pets", "--output", tmp_path / "n.npz")
    assert_fails(lost, "nothing was written")
    assert not (tmp_path / "n.npz").exists()


@pytest.mark.usefixtures("without_report")
def test_uncalibrated_bundle_gives_no_verdict(
    familiar: Familiar, colors: Path, uncalibrated_bundle: Path, tmp_path: Path
):
    model = uncalibrated_bundle
    photos = sorted((colors / "id 00").glob("*.png"))
    answer = familiar("verify", *photos[:2], "--model", model)
    assert re.match(r"similarity [01]\.\d{3}; this bundle was never calibrated, so there is no verdict: ", answer.out)
    assert "probability" not in answer.out
    document = json.loads(familiar("verify", *photos[:2], "-m", model, "--json").out)
    assert (document["probability"], document["same"], document["threshold"]) == (None, None, None)
    evaluated = familiar("evaluate", model, colors, "-o", tmp_path / "e", "--suite", "verification")
    assert evaluated.code == 0, evaluated.err
    assert "fixed defaults" in evaluated.err


@pytest.mark.usefixtures("without_report")
def test_evaluate_compares_two_results_on_the_same_photos(
    familiar: Familiar, colors: Path, mean_color_bundle: Path, tmp_path: Path
):
    suites = ("--suite", "verification", "--suite", "retrieval", "--leaks", "skip")
    for name, options in {"plain": (), "middle": ("--resize-px", "40")}.items():
        done = familiar("evaluate", mean_color_bundle, colors, "-o", tmp_path / name, *suites, *options)
        assert done.code == 0, done.err
    files = [tmp_path / name / "eval_results.json" for name in ("plain", "middle")]
    compared = familiar("evaluate", "--compare", *files)
    assert compared.code == 0, compared.err
    assert "verification.auc" in compared.out
    assert any(
        line.startswith("verification.spearman ") and line.endswith(" no interval")
        for line in compared.out.splitlines()
    )
    assert compared.out.splitlines()[-1].endswith(".")
    figures = json.loads(familiar("evaluate", "--compare", *files, "--json").out)["differences"]
    assert {"retrieval.recall_at_1", "verification.auc"} <= {figure["figure"] for figure in figures}
    few = familiar("evaluate", mean_color_bundle, colors, "-o", tmp_path / "few", *suites, "--max-photos", "2")
    assert few.code == 0, few.err
    assert_fails(familiar("evaluate", "--compare", files[0], tmp_path / "few/eval_results.json"), "photos")


@pytest.mark.usefixtures("without_report")
def test_evaluate_rejects_wrong_usage_and_draws_chosen_pairs(
    familiar: Familiar, colors: Path, mean_color_bundle: Path, tmp_path: Path
):
    out = ("-o", tmp_path / "e")
    for wrong in (
        (),
        (mean_color_bundle,),
        (mean_color_bundle, colors),
        (mean_color_bundle, colors, *out, "--by", "coat"),
        (mean_color_bundle, colors, *out, "--pairs", "balanced:many"),
        (mean_color_bundle, "--compare", "a", "b"),
    ):
        assert familiar("evaluate", *wrong).code == 2, wrong
    only = ("--suite", "verification", "--json", "--leaks", "skip")
    drawn = familiar("evaluate", mean_color_bundle, colors, *out, "--pairs", "balanced:40", *only)
    figures = json.loads(drawn.out)["figures"]
    names = ("pairs", "same_pairs", "different_pairs")
    assert [figures[f"verification.{name}"]["value"] for name in names] == ["balanced", 20, 20]
    natural = familiar("evaluate", mean_color_bundle, colors, *out, "--pairs", "natural:40", *only)
    assert json.loads(natural.out)["figures"]["verification.pairs"]["value"] == "natural"
    missing = familiar("evaluate", mean_color_bundle, colors, *out, "--pairs", tmp_path / "gone.txt")
    assert_fails(missing, "gone.txt")
