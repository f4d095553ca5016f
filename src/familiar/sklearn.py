"""scikit-learn's estimators: a transformer of photos into embeddings, and a classifier that knows strangers."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos

__all__ = ["NO_IDENTITY", "FaceEmbedder", "IdentityClassifier"]

NO_IDENTITY = -1  # what is predicted for a stranger where identities are numbers


class FaceEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embed the best face of each photo.

    Args:
        model: a bundle's file, run folder or name, as for `Embedder`.
        detector: finds the face, as for `Embedder.faces`, such as "none" for crops; None: the model's own.
        flip: whether each embedding is the mean of those of the photo and its mirror image.
    """

    def __init__(self, model: Any = "pet-mobile", detector: Any = None, flip: bool = False) -> None:
        self.model = model
        self.detector = detector
        self.flip = flip

    def fit(self, X: Any, y: Any = None) -> "FaceEmbedder":  # noqa: ARG002, N803 - scikit-learn's names
        """Open the model; nothing is learned.

        Args:
            X: photos.
            y: passed over.

        Raises:
            BadBundle: there is no such model.
        """
        self._n_features_out = load_bundle(self.model).metadata.embedding_dim
        return self

    def transform(self, X: Any) -> Float32[np.ndarray, "n d"]:  # noqa: N803
        """Embed photos.

        Args:
            X: paths, or uint8 RGB arrays [h, w, 3], also stacked as [n, h, w, 3].

        Returns:
            Unit rows, one for each photo.

        Raises:
            FamiliarError: a photo cannot be read or has no face; the message names it.
        """
        check_is_fitted(self, "_n_features_out")
        sources = [Path(photo) if isinstance(photo, str) else photo for photo in X]
        embedded = embed_photos(_open_embedder(self.model), sources, self.detector, flip=self.flip)
        if embedded.skipped:
            raise embedded.skipped[0]
        return embedded.embeddings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        tags.requires_fit = True
        return tags


class IdentityClassifier(ClassifierMixin, BaseEstimator):
    """Recognize the individuals that it was fitted with, and call everybody else unknown.

    A photo is of the individual of the most similar photo, if their similarity reaches the threshold.

    Args:
        threshold: lowest cosine similarity of a known individual, in [-1, 1]; None: the one that best separates, in the
            photos given to `fit`, the nearest other photo of the same individual from the nearest of another.
        unknown: what is predicted for a stranger; `NO_IDENTITY` where the individuals are numbers.

    Attributes:
        classes_: the individuals, sorted.
        threshold_: the lowest similarity.

    >>> embeddings = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]])
    >>> classifier = IdentityClassifier().fit(embeddings, ["Mia", "Mia", "Tom", "Tom"])
    >>> classifier.predict([[0.2, 2], [-1, 0]]).tolist()
    ['Tom', 'unknown']
    """

    def __init__(self, threshold: float | None = None, unknown: str = "unknown") -> None:
        self.threshold = threshold
        self.unknown = unknown

    def fit(self, X: Any, y: Any) -> "IdentityClassifier":  # noqa: N803
        """Remember the embeddings of known individuals.

        Args:
            X: embeddings [n, d], of any length.
            y: the individual of each.

        Raises:
            ValueError: they are not as many, or have missing values.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)  # noqa: N806
        check_classification_targets(y)
        self.classes_, self._labels = np.unique(y, return_inverse=True)
        self._known = _unit_rows(X)
        self.threshold_ = self._fit_threshold() if self.threshold is None else float(self.threshold)
        return self

    def similarities(self, X: Any) -> Float64[np.ndarray, "n c"]:  # noqa: N803
        """Return the similarity of each embedding to the most similar photo of each individual, in [-1, 1].

        Args:
            X: embeddings [n, d].
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)  # noqa: N806
        return self._class_similarities(_unit_rows(X) @ self._known.T)

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:  # noqa: N803
        """Return the individual of each embedding, or that it is unknown.

        Args:
            X: embeddings [n, d].
        """
        similarities = self.similarities(X)
        predicted = self.classes_[similarities.argmax(axis=1)]
        is_number = np.issubdtype(self.classes_.dtype, np.number)
        return np.where(
            similarities.max(axis=1) >= self.threshold_, predicted, NO_IDENTITY if is_number else self.unknown
        )

    def _class_similarities(self, similarities: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n c"]:
        return np.stack([similarities[:, self._labels == label].max(axis=1) for label in range(len(self.classes_))], 1)

    def _fit_threshold(self) -> float:
        similarities = self._known @ self._known.T
        np.fill_diagonal(similarities, -np.inf)
        by_class = self._class_similarities(similarities)
        rows = np.arange(len(by_class))
        same = by_class[rows, self._labels]
        by_class[rows, self._labels] = -np.inf
        other = by_class.max(axis=1)
        same, other = np.sort(same[np.isfinite(same)]), np.sort(other[np.isfinite(other)])
        if not len(same) or not len(other):  # a single photo of each, or a single individual
            return float((other[-1] + 1) / 2) if len(other) else float(same[0]) if len(same) else 0.0
        candidates = np.unique(np.concatenate([same, other]))
        middles = np.append((candidates[1:] + candidates[:-1]) / 2, candidates[-1])
        missed = np.searchsorted(same, middles) / len(same)
        accepted = 1 - np.searchsorted(other, middles) / len(other)
        return float(middles[np.argmin(missed + accepted)])


@lru_cache(maxsize=2)  # estimators are copied and sent to other processes, which an open network cannot be
def _open_embedder(model: Any) -> Embedder:
    return Embedder(model)


def _unit_rows(rows: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)
