"""Which species an embedding shows: a linear softmax classifier in one bundle's space. Knows nothing of photos."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from familiar.core.errors import SpaceMismatch
from familiar.core.vectors import check_unit_rows

MIN_PROBABILITY = 0.9  # of the likeliest species; below, a photo is left to a person


@dataclass(frozen=True)
class HeldOutAccuracy:
    """How heads judged photos of identities that they were not fitted on, each photo once.

    `accuracy`, in [0, 1]: the share of photos whose likeliest species is theirs, every species weighing the same.
    `confusion[i][j]`: how many photos of species i were sent to species j; the last column were left unsure.
    """

    accuracy: float
    confusion: tuple[tuple[int, ...], ...]

    @property
    def unsure(self) -> float:
        """The share of photos that were left unsure, in [0, 1], every species weighing the same."""
        return float(np.mean([row[-1] / sum(row) for row in self.confusion]))

    @property
    def misrouted(self) -> float:
        """The share of photos that were sent to another species, in [0, 1], every species weighing the same."""
        right = np.mean([row[place] / sum(row) for place, row in enumerate(self.confusion)])
        return float(1 - right - self.unsure)


@dataclass(frozen=True, eq=False)
class SpeciesClassifier:
    """`softmax((weights @ embedding + bias) / temperature)` over the species `names`, for the vectors of `space_id`.

    A species is decided on where its probability reaches `min_probability`, in [0, 1]. `fitted_on` says for each
    species on how many identities and photos; `held_out`, how well that did.
    """

    names: tuple[str, ...]
    weights: Float64[np.ndarray, "k d"]
    bias: Float64[np.ndarray, " k"]
    temperature: float
    space_id: str
    fitted_on: Mapping[str, Mapping[str, int]]
    held_out: HeldOutAccuracy
    min_probability: float = MIN_PROBABILITY

    def __post_init__(self) -> None:
        check_names(self.names)
        count = len(self.names)
        if self.weights.ndim != 2 or 0 in self.weights.shape or len(self.weights) != count:
            raise ValueError(f"the weights of {count} species are (k, d), not {self.weights.shape}")
        if self.bias.shape != (count,):
            raise ValueError(f"the biases of {count} species are (k,), not {self.bias.shape}")
        if not (np.isfinite(self.weights).all() and np.isfinite(self.bias).all()):
            raise ValueError("weights or biases that are not finite")
        if not 0 < self.temperature < np.inf:
            raise ValueError(f"a temperature is above 0 and finite, not {self.temperature}")
        if not 0 <= self.min_probability <= 1:
            raise ValueError(f"min_probability lies in [0, 1], not {self.min_probability}")
        if [len(row) for row in self.held_out.confusion] != [count + 1] * count:
            raise ValueError(f"the confusion of {count} species is k x (k + 1)")

    @property
    def embedding_dim(self) -> int:
        return self.weights.shape[1]

    def probabilities(self, embeddings: Float32[np.ndarray, "n d"], space_id: str) -> Float64[np.ndarray, "n k"]:
        """Of each species, for unit rows of the space `space_id`; each row sums to 1.

        SpaceMismatch where that is not the head's, or the rows are of another width; ValueError where they are no
        unit vectors.
        """
        self.check_space(space_id, embeddings.shape[1])
        check_unit_rows(embeddings)
        return softmax((embeddings.astype(np.float64) @ self.weights.T + self.bias) / self.temperature)

    def check_space(self, space_id: str, embedding_dim: int) -> None:
        """SpaceMismatch unless the head was fitted on such vectors."""
        if (space_id, embedding_dim) != (self.space_id, self.embedding_dim):
            raise SpaceMismatch(
                f"the species head was fitted in the space {self.space_id} ({self.embedding_dim} numbers), these "
                f"embeddings are of {space_id} ({embedding_dim}); use the bundle it was fitted with, or fit it again"
            )

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it; `from_dict` reads it back, to the last bit."""
        return {
            "names": list(self.names),
            "weights": self.weights.tolist(),
            "bias": self.bias.tolist(),
            "temperature": self.temperature,
            "space_id": self.space_id,
            "fitted_on": {name: dict(counts) for name, counts in self.fitted_on.items()},
            "held_out": asdict(self.held_out),
            "min_probability": self.min_probability,
        }

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> "SpeciesClassifier":
        """KeyError, TypeError or ValueError where something is missing or cannot be."""
        held_out = stored["held_out"]
        return SpeciesClassifier(
            **{
                **stored,
                "names": tuple(stored["names"]),
                "weights": np.array(stored["weights"], np.float64),
                "bias": np.array(stored["bias"], np.float64),
                "held_out": HeldOutAccuracy(held_out["accuracy"], tuple(map(tuple, held_out["confusion"]))),
            }
        )


def check_names(names: tuple[str, ...]) -> None:
    """ValueError unless they can name species: two or more, distinct, of letters, digits, `-` and `_`."""
    if len(names) < 2:
        raise ValueError(f"a head tells two species apart or more, not {len(names)}")
    if len(set(names)) != len(names):
        raise ValueError(f"a species is named twice: {', '.join(names)}")
    # They become the names of arrays in a file.
    if odd := [name for name in names if not re.fullmatch(r"[\w-]+", name)]:
        raise ValueError(f"a species is named by letters, digits, '-' and '_', not {odd[0]!r}")


def softmax(logits: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
    """Rows of probabilities.

    >>> softmax(np.array([[0.0, 0.0], [1000.0, 0.0]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))  # without the largest exp would overflow
    return exponentials / exponentials.sum(axis=1, keepdims=True)
