"""The estimators of scikit-learn: its own checks as far as they apply, and what only ours promise."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from familiar.core.errors import FamiliarError
from familiar.photos.decoding import load_photo, save_photo
from familiar.sklearn import FaceEmbedder, IdentityClassifier

COLORS = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200)}


@parametrize_with_checks([IdentityClassifier(), IdentityClassifier(threshold=0.5)])
def test_classifier_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture
def photos(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Paths of four photos of nearly one color for each name."""
    rng = np.random.default_rng(0)
    paths, names = [], []
    for name, color in COLORS.items():
        for index in range(4):
            pixels = np.clip(np.array(color) + rng.integers(-20, 20, (40, 40, 3)), 0, 255).astype(np.uint8)
            paths.append(str(tmp_path / f"{name}-{index}.png"))
            save_photo(load_photo(pixels), Path(paths[-1]))
            names.append(name)
    return paths, names


def test_embedder_takes_paths_and_arrays(photos: tuple[list[str], list[str]], mean_color_bundle: Path):
    paths, _ = photos
    embedder = FaceEmbedder(mean_color_bundle, detector="none").fit(paths)
    embeddings = embedder.transform(paths)
    assert embeddings.shape == (12, 3)
    assert np.allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)
    arrays = np.stack([load_photo(path).rgb_u8 for path in paths])
    assert np.array_equal(embedder.transform(arrays), embeddings)
    assert embedder.get_feature_names_out().tolist() == ["faceembedder0", "faceembedder1", "faceembedder2"]
    with pytest.raises(FamiliarError, match=r"missing\.png"):
        embedder.transform([*paths, "missing.png"])


def test_pipeline_is_copied_sent_and_searched(photos: tuple[list[str], list[str]], mean_color_bundle: Path):
    pipeline = make_pipeline(FaceEmbedder(mean_color_bundle, detector="none"), IdentityClassifier())
    paths, names = photos
    fitted = pickle.loads(pickle.dumps(clone(pipeline).fit(paths, names)))
    assert fitted.predict(paths).tolist() == names
    assert cross_val_score(pipeline, paths, names, cv=2).mean() == 1
    search = GridSearchCV(pipeline, {"identityclassifier__threshold": [0.5, None]}, cv=2).fit(paths, names)
    assert search.best_score_ == 1


def test_stranger_is_unknown():
    rng = np.random.default_rng(1)
    centers = np.eye(4)[:3]
    labels = np.repeat(np.arange(3), 5)
    known = centers[labels] + rng.normal(0, 0.05, (15, 4))
    names = np.array(["Mia", "Tom", "Zoe"])
    classifier = IdentityClassifier().fit(known, names[labels])
    assert 0.2 < classifier.threshold_ < 0.99
    queries = np.concatenate([centers + 0.02, [[0, 0, 0, 1]]])
    assert classifier.predict(queries).tolist() == ["Mia", "Tom", "Zoe", "unknown"]
    assert IdentityClassifier().fit(known, labels).predict(queries).tolist() == [0, 1, 2, -1]
    assert classifier.similarities(queries).shape == (4, 3)


@pytest.mark.parametrize(("labels", "threshold"), [(["Mia", "Tom"], 0.9), (["Mia", "Mia"], 0.8)])
def test_threshold_of_too_few_photos_is_between_what_there_is(labels: list[str], threshold: float):
    """With one photo of each, between the nearest other individual and identity; with one individual, its own."""
    assert IdentityClassifier().fit([[1, 0], [0.8, 0.6]], labels).threshold_ == pytest.approx(threshold)


def test_threshold_given_is_used():
    strict = IdentityClassifier(threshold=0.99).fit([[1, 0], [0, 1]], ["Mia", "Tom"])
    assert strict.predict([[1, 0.05], [1, 0.5]]).tolist() == ["Mia", "unknown"]
