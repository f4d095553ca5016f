"""Distillation: the teachers' embeddings, that a network learns them, and that a run keeps its teachers."""

import json
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadRecipe, BadRun
from familiar.core.types import Crop, Photo
from familiar.core.vectors import normalize
from familiar.datasets.folders import DataSpec, open_photo
from familiar.detection.alignment import align
from familiar.detection.detectors import WholePhoto
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.export.run_export import export_bundle
from familiar.loading.blends import BlendedDataset, blend
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.training.distillation import embed_with_teachers
from familiar.training.fitting import fit
from familiar.training.history import EpochRecord
from support.random_bundle import random_bundle
from support.tiny_run import TINY

pytestmark = pytest.mark.slow

SMALL = TINY.with_settings(["budget.epochs=2"])
DIM = SMALL.model.embedding_dim


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory, cats: DataSpec, shared_bundle: Path) -> list[Path]:
    other = tmp_path_factory.mktemp("teachers") / "other.onnx"
    photos = [Path(str(photo)) for photo in cats.read().photos]
    return [shared_bundle, random_bundle(other, photos, load_bundle(shared_bundle).metadata.preprocessing)]


def recipe_with_teachers(*teachers: Path, settings: tuple[str, ...] = ()):
    return SMALL.with_settings([f"distill.teacher={','.join(map(str, teachers))}", *settings])


def dataset_of(cats: DataSpec) -> FaceDataset:
    photos = read_table(cats.read(), SMALL.with_settings(["input.normalization=imagenet"]).input.preprocessing())
    return FaceDataset(photos.table, photos.crops)


def embeddings_by(teacher: Path, cats: DataSpec, *, mirrored: bool = True) -> np.ndarray:
    return embed_photos(Embedder(teacher), cats.read().photos, open_photo=open_photo, flip=mirrored).embeddings


def test_teacher_embeddings_are_none_without_teacher(cats: DataSpec) -> None:
    assert embed_with_teachers(SMALL, dataset_of(cats)) is None


@pytest.mark.parametrize("mirrored", [True, False])
def test_one_teacher_gives_its_embeddings(teachers: list[Path], cats: DataSpec, mirrored: bool) -> None:
    recipe = recipe_with_teachers(teachers[0], settings=(f"distill.mirrored={mirrored}",))
    embedded = embed_with_teachers(recipe, dataset_of(cats))
    assert embedded is not None
    np.testing.assert_allclose(embedded.embeddings, embeddings_by(teachers[0], cats, mirrored=mirrored), atol=1e-6)
    assert not np.allclose(embedded.embeddings, embeddings_by(teachers[0], cats, mirrored=not mirrored), atol=1e-3)
    assert embedded.space_ids == (Embedder(teachers[0]).metadata.space_id,)


def test_several_teachers_average_their_similarities(teachers: list[Path], cats: DataSpec) -> None:
    embedded = embed_with_teachers(
        recipe_with_teachers(*teachers, settings=(f"model.embedding_dim={2 * DIM}",)), dataset_of(cats)
    )
    assert embedded is not None
    parts = [embeddings_by(teacher, cats) for teacher in teachers]
    expected = np.mean([part @ part.T for part in parts], axis=0)
    np.testing.assert_allclose(embedded.embeddings @ embedded.embeddings.T, expected, atol=1e-5)


def test_teacher_embeddings_are_reduced_to_embedding_dim(teachers: list[Path], cats: DataSpec) -> None:
    embedded = embed_with_teachers(recipe_with_teachers(*teachers), dataset_of(cats))
    assert embedded is not None
    assert embedded.embeddings.shape[1] == DIM
    np.testing.assert_allclose(embedded.embeddings, normalize(embedded.embeddings), atol=1e-6)
    parts = np.concatenate([embeddings_by(teacher, cats) for teacher in teachers], axis=1) / 2**0.5
    lost = np.abs(embedded.embeddings @ embedded.embeddings.T - parts @ parts.T)
    assert lost.mean() < 0.05, "48 photos, and half of the directions"


def test_blends_are_embedded_behind_the_photos(teachers: list[Path], cats: DataSpec) -> None:
    plain = dataset_of(cats)
    blended = BlendedDataset(plain.table, plain.crops, seed=3, blends=20)
    counted: list[tuple[int, int]] = []
    embedded = embed_with_teachers(
        recipe_with_teachers(teachers[0]), blended, on_crop=lambda done, total: counted.append((done, total))
    )
    assert embedded is not None
    photos = len(plain)
    np.testing.assert_allclose(embedded.embeddings[:photos], embeddings_by(teachers[0], cats), atol=1e-6)
    pixels = np.stack([blend(plain.crops, index, 3) for index in range(20)])
    teacher = Embedder(teachers[0])
    crops = [Photo(each, "blend", (each.shape[1], each.shape[0])) for each in pixels]
    whole_square = teacher.metadata.preprocessing
    expected = teacher.embed(
        [
            Crop(align(photo, face, whole_square).rgb_u8, "blend")
            for photo in crops
            for face in WholePhoto().detect(photo)
        ]
    )
    np.testing.assert_allclose(embedded.embeddings[photos:], expected, atol=1e-6)
    assert counted[-1] == (photos + 20, photos + 20)
    assert [done for done, _ in counted] == sorted(done for done, _ in counted)


def test_stored_embeddings_are_read_for_the_same_training_only(
    tmp_path: Path, teachers: list[Path], cats: DataSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, recipe, stored = dataset_of(cats), recipe_with_teachers(teachers[0]), tmp_path / "teachers.npz"
    first = embed_with_teachers(recipe, dataset, "contents", stored)
    assert first is not None
    embedded_rows: list[int] = []

    def embed(_embedder: Embedder, rows: FaceDataset, _mirrored: bool, _count: object) -> np.ndarray:
        embedded_rows.append(len(rows))
        return np.zeros((len(rows), 4), np.float32) + np.float32(0.5)

    monkeypatch.setattr("familiar.training.distillation._embed_rows", embed)
    again = embed_with_teachers(recipe, dataset, "contents", stored)
    assert again is not None
    assert not embedded_rows
    np.testing.assert_array_equal(again.embeddings, first.embeddings)
    embed_with_teachers(recipe, dataset, "other photos", stored)
    embed_with_teachers(recipe.with_settings(["loss.scale=9"]), dataset, "other photos", stored)
    embed_with_teachers(recipe.with_settings(["distill.mirrored=false"]), dataset, "other photos", stored)
    embed_with_teachers(recipe, BlendedDataset(dataset.table, dataset.crops, blends=4), "contents", stored)
    stored.write_bytes(b"PK\x03\x04 cut")
    embed_with_teachers(recipe, dataset, "contents", stored)
    assert len(embedded_rows) == 5


def test_blends_need_a_teacher(tmp_path: Path, cats: DataSpec) -> None:
    with pytest.raises(BadRecipe, match="--teacher BUNDLE"):
        fit(SMALL.with_settings(["distill.blends=1"]), cats, tmp_path / "run")


@pytest.mark.usefixtures("without_curves")
def test_run_with_blends_resumes_to_the_same_weights(tmp_path: Path, teachers: list[Path], cats: DataSpec) -> None:
    settings = ("distill.blends=1", "distill.relation_weight=3", "distill.label_weight=0.1", "sampler.batch_size=16")
    recipe = recipe_with_teachers(teachers[0], settings=settings)
    fit(recipe, cats, tmp_path / "whole")
    stopped = tmp_path / "stopped"

    def stop(_record: EpochRecord) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(recipe, cats, stopped, on_epoch=stop)
    fit(recipe, cats, stopped, resume=True)
    assert (stopped / "embedder.safetensors").read_bytes() == (tmp_path / "whole/embedder.safetensors").read_bytes()
    assert json.loads((stopped / "data.json").read_text())["distilled"]["space_ids"]


@pytest.mark.exhaustive
def test_distilled_run_agrees_with_teacher(tmp_path: Path, teachers: list[Path], cats: DataSpec) -> None:
    """A network trained without the teacher agrees with it much less."""
    settings = ("seed=2", "budget.epochs=30", "validation.every_epochs=30")

    def agreement(recipe, name: str) -> float:
        fit(recipe, cats, tmp_path / name)
        student = export_bundle(tmp_path / name, tmp_path / f"{name}.onnx").path
        return float((embeddings_by(student, cats) * embeddings_by(teachers[0], cats)).sum(axis=1).mean())

    distilled = recipe_with_teachers(teachers[0], settings=(*settings, "distill.weight=100"))
    assert agreement(distilled, "distilled") > agreement(SMALL.with_settings(settings), "plain") + 0.3


@pytest.mark.usefixtures("without_curves")
def test_resume_rejects_changed_teacher(tmp_path: Path, teachers: list[Path], cats: DataSpec) -> None:
    copy = tmp_path / "teacher.onnx"
    copy.write_bytes(teachers[0].read_bytes())
    fit(recipe_with_teachers(copy), cats, tmp_path / "run")
    copy.write_bytes(teachers[1].read_bytes())
    with pytest.raises(BadRun, match="other teachers"):
        fit(recipe_with_teachers(copy), cats, tmp_path / "run", resume=True)


def test_rejects_missing_teacher_before_creating_run(tmp_path: Path, cats: DataSpec) -> None:
    with pytest.raises(BadRecipe, match=r"^distill\.teacher: .*missing\.onnx:"):
        fit(recipe_with_teachers(Path("missing.onnx")), cats, tmp_path / "run")
    assert not (tmp_path / "run").exists()
