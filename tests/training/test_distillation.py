"""Distillation: the teachers' embeddings, that a network learns them, and that a run keeps its teachers."""

from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadRecipe, BadRun
from familiar.core.vectors import normalize
from familiar.datasets.folders import DataSpec, open_photo
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.export.run_export import export_bundle
from familiar.training.distillation import embed_with_teachers
from familiar.training.fitting import fit
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


def embeddings_by(teacher: Path, cats: DataSpec) -> np.ndarray:
    return embed_photos(Embedder(teacher), cats.read().photos, open_photo=open_photo, flip=True).embeddings


def test_teacher_embeddings_are_none_without_teacher(cats: DataSpec) -> None:
    assert embed_with_teachers(SMALL, cats.read()) is None


def test_one_teacher_gives_its_embeddings(teachers: list[Path], cats: DataSpec) -> None:
    embedded = embed_with_teachers(recipe_with_teachers(teachers[0]), cats.read())
    assert embedded is not None
    np.testing.assert_allclose(embedded.embeddings, embeddings_by(teachers[0], cats), atol=1e-6)
    assert embedded.space_ids == (Embedder(teachers[0]).metadata.space_id,)


def test_several_teachers_average_their_similarities(teachers: list[Path], cats: DataSpec) -> None:
    embedded = embed_with_teachers(
        recipe_with_teachers(*teachers, settings=(f"model.embedding_dim={2 * DIM}",)), cats.read()
    )
    assert embedded is not None
    parts = [embeddings_by(teacher, cats) for teacher in teachers]
    expected = np.mean([part @ part.T for part in parts], axis=0)
    np.testing.assert_allclose(embedded.embeddings @ embedded.embeddings.T, expected, atol=1e-5)


def test_teacher_embeddings_are_reduced_to_embedding_dim(teachers: list[Path], cats: DataSpec) -> None:
    embedded = embed_with_teachers(recipe_with_teachers(*teachers), cats.read())
    assert embedded is not None
    assert embedded.embeddings.shape[1] == DIM
    np.testing.assert_allclose(embedded.embeddings, normalize(embedded.embeddings), atol=1e-6)
    parts = np.concatenate([embeddings_by(teacher, cats) for teacher in teachers], axis=1) / 2**0.5
    lost = np.abs(embedded.embeddings @ embedded.embeddings.T - parts @ parts.T)
    assert lost.mean() < 0.05, "48 photos, and half of the directions"


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
