"""Drawn pets as labeled photos: as many identities as wanted, none of them real.

They serve the quickstart, tests, and training where no photos are at hand. The same words name the same
pixels in every process: a photo depends on nothing but its seed, species, identity, index, difficulty and size.
"""

import re
from dataclasses import dataclass

import numpy as np

from familiar.core.errors import BadDataset
from familiar.core.types import Photo
from familiar.datasets.synthetic.face import face
from familiar.datasets.synthetic.photo import draw
from familiar.datasets.synthetic.traits import SPECIES, Species

PREFIX = "synthetic:"
_EXAMPLE = "synthetic:cats:20000x6 or synthetic:dogs:500x4:seed=3:difficulty=0.7"
_COUNTS = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")


@dataclass(frozen=True)
class SyntheticPhoto:
    """One drawn photo; nothing is drawn until `draw`.

    `difficulty` in [0, 1]: at 0 identities are plainly apart, look ahead and stand in mild light; at 1 they
    look alike and pose, light and things before the face vary heavily. ValueError outside the ranges.
    """

    species: Species
    identity: int
    index: int
    seed: int = 0
    difficulty: float = 0.5
    size_px: int = 224

    def __post_init__(self) -> None:
        if self.species not in SPECIES:
            raise ValueError(f"species is one of {', '.join(SPECIES)}, not {self.species!r}")
        for name in ("identity", "index", "seed"):
            # One word of a SeedSequence: a larger number would take two and could meet another photo's words.
            if not 0 <= getattr(self, name) < 2**32:
                raise ValueError(f"{name} lies in [0, 2**32), not {getattr(self, name)}")
        if not 0.0 <= self.difficulty <= 1.0:
            raise ValueError(f"difficulty lies in [0, 1], not {self.difficulty}")
        if not 32 <= self.size_px <= 512:
            raise ValueError(f"size_px lies in [32, 512], not {self.size_px}")

    @property
    def name(self) -> str:
        """What stands for a path in messages and split files: `synthetic:cats/000012/0003`.

        A seed or a difficulty other than the default is named too: `synthetic:cats:seed=3/000012/0003`.
        """
        return f"{PREFIX}{self.species}{_options(self.seed, self.difficulty)}/{self.identity:06d}/{self.index:04d}"

    def draw(self) -> Photo:
        """The pixels, `size_px` square. At 224 px one core takes 9 ms for an identity's first photo, 4 for the next."""
        rng = np.random.default_rng([3, self.seed, SPECIES.index(self.species), self.identity, self.index])
        seen = face(self.seed, self.species, self.identity, self.difficulty, self.size_px)
        return Photo(draw(seen, rng, self.difficulty, self.size_px), self.name, (self.size_px, self.size_px))


@dataclass(frozen=True)
class SyntheticSource:
    """Drawn photos by the number: `identities` pets of one species, `photos_each` photos of each."""

    species: Species
    identities: int
    photos_each: int
    seed: int = 0
    difficulty: float = 0.5

    def __post_init__(self) -> None:
        if self.identities < 1 or self.photos_each < 1:
            raise ValueError(f"at least one identity and one photo, not {self.identities}x{self.photos_each}")
        SyntheticPhoto(self.species, 0, 0, self.seed, self.difficulty)

    @staticmethod
    def parse(text: str) -> "SyntheticSource":
        """`synthetic:SPECIES:IDENTITIESxPHOTOS[:seed=N][:difficulty=D]`. BadDataset where it is not that.

        >>> SyntheticSource.parse("synthetic:dogs:500x4:difficulty=0.7")
        SyntheticSource(species='dogs', identities=500, photos_each=4, seed=0, difficulty=0.7)
        """
        species, _, rest = text.removeprefix(PREFIX).partition(":")
        counts, *options = rest.split(":")
        match = _COUNTS.fullmatch(counts)
        values = {name: value for name, _, value in (option.partition("=") for option in options)}
        if not is_synthetic(text) or species not in SPECIES or match is None:
            raise BadDataset(f"{text}: drawn pets are written like {_EXAMPLE}, the species {' or '.join(SPECIES)}")
        if len(values) < len(options) or not values.keys() <= {"seed", "difficulty"}:
            raise BadDataset(f"{text}: after the counts come seed=N and difficulty=D, each once, as in {_EXAMPLE}")
        try:
            seed, difficulty = int(values.get("seed", "0")), float(values.get("difficulty", "0.5"))
            return SyntheticSource(species, int(match[1]), int(match[2]), seed, difficulty)
        except ValueError as error:
            raise BadDataset(f"{text}: {error}; written like {_EXAMPLE}") from error

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{PREFIX}{self.species}:{self.identities}x{self.photos_each}{_options(self.seed, self.difficulty)}"

    def photos(self, identity: int) -> tuple[SyntheticPhoto, ...]:
        """The photos of one identity, 0 to `identities` - 1. IndexError beyond."""
        if not 0 <= identity < self.identities:
            raise IndexError(f"{self} has no identity {identity}")
        return tuple(
            SyntheticPhoto(self.species, identity, index, self.seed, self.difficulty)
            for index in range(self.photos_each)
        )


def is_synthetic(text: str) -> bool:
    """Whether this names drawn pets instead of a folder."""
    return text.startswith(PREFIX)


def _options(seed: int, difficulty: float) -> str:
    return (f":seed={seed}" if seed else "") + (f":difficulty={difficulty}" if difficulty != 0.5 else "")
