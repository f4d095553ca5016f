"""Synthetic labeled photos: drawn pets of any number of identities, none of them real.

For the quickstart, tests, and training without photos. A photo depends only on its seed, species, identity,
index, difficulty and size, so that a name gives the same pixels in every process.
"""

import re
from dataclasses import dataclass

import numpy as np

from familiar.core.errors import BadDataset
from familiar.core.types import Photo
from familiar.datasets.synthetic.face import render_face
from familiar.datasets.synthetic.photo import draw_photo
from familiar.datasets.synthetic.species import SPECIES, Species

PREFIX = "synthetic:"
_EXAMPLE = "synthetic:cats:20000x6 or synthetic:dogs:500x4:seed=3:difficulty=0.7"
_COUNTS = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")


@dataclass(frozen=True)
class SyntheticPhoto:
    """One drawn photo; its pixels are drawn by `draw`.

    Attributes:
        species: "cats" or "dogs".
        identity: number of the pet, in [0, 2**32).
        index: number of the photo of this pet, in [0, 2**32).
        seed: of all random numbers, in [0, 2**32).
        difficulty: in [0, 1]. At 0 identities differ clearly, in frontal pose and mild light; at 1 they resemble
            each other, and pose, light and occlusions vary strongly.
        size_px: side of the square, in [32, 512].

    Raises:
        ValueError: a value is out of its range.
    """

    species: Species
    identity: int
    index: int
    seed: int = 0
    difficulty: float = 0.5
    size_px: int = 224

    def __post_init__(self) -> None:
        if self.species not in SPECIES:
            raise ValueError(f"species must be one of {', '.join(SPECIES)}, got {self.species!r}")
        for name in ("identity", "index", "seed"):
            # One word of a SeedSequence: a larger number would take two, which could equal another photo's words.
            if not 0 <= getattr(self, name) < 2**32:
                raise ValueError(f"{name} must be in [0, 2**32), got {getattr(self, name)}")
        if not 0.0 <= self.difficulty <= 1.0:
            raise ValueError(f"difficulty must be in [0, 1], got {self.difficulty}")
        if not 32 <= self.size_px <= 512:
            raise ValueError(f"size_px must be in [32, 512], got {self.size_px}")

    @property
    def name(self) -> str:
        """The name used instead of a path in messages and split files: `synthetic:cats/000012/0003`.

        A seed or difficulty other than the default is part of it: `synthetic:cats:seed=3/000012/0003`.
        """
        return f"{PREFIX}{self.species}{_options(self.seed, self.difficulty)}/{self.identity:06d}/{self.index:04d}"

    def draw(self) -> Photo:
        """Draw the pixels, `size_px` square.

        At 224 px one core takes 9 ms for the first photo of an identity and 4 ms for each further one.
        """
        rng = np.random.default_rng([3, self.seed, SPECIES.index(self.species), self.identity, self.index])
        frontal_face = render_face(self.seed, self.species, self.identity, self.difficulty, self.size_px)
        return Photo(
            draw_photo(frontal_face, rng, self.difficulty, self.size_px), self.name, (self.size_px, self.size_px)
        )


@dataclass(frozen=True)
class SyntheticSource:
    """A set of drawn photos of pets of one species.

    Attributes:
        species: "cats" or "dogs".
        identities: number of pets, at least 1.
        photos_per_identity: number of photos of each pet, at least 1.
        seed: of all random numbers, in [0, 2**32).
        difficulty: in [0, 1], from easy to hard to tell apart, as in `SyntheticPhoto`.

    Raises:
        ValueError: a value is out of its range.
    """

    species: Species
    identities: int
    photos_per_identity: int
    seed: int = 0
    difficulty: float = 0.5

    def __post_init__(self) -> None:
        if self.identities < 1 or self.photos_per_identity < 1:
            raise ValueError(
                f"synthetic data needs at least 1 identity and 1 photo of each, got {self.identities} identities with "
                f"{self.photos_per_identity} photos each"
            )
        SyntheticPhoto(self.species, 0, 0, self.seed, self.difficulty)

    @staticmethod
    def parse(text: str) -> "SyntheticSource":
        """Parse `synthetic:SPECIES:IDENTITIESxPHOTOS[:seed=N][:difficulty=D]`.

        Args:
            text: in this form; N is a whole number in [0, 2**32) (default 0) and D is in [0, 1] (default 0.5).

        Raises:
            BadDataset: the text has another form, or a value is out of its range.

        >>> SyntheticSource.parse("synthetic:dogs:500x4:difficulty=0.7")
        SyntheticSource(species='dogs', identities=500, photos_per_identity=4, seed=0, difficulty=0.7)
        """
        species, _, rest = text.removeprefix(PREFIX).partition(":")
        counts, *options = rest.split(":")
        match = _COUNTS.fullmatch(counts)
        values = {name: value for name, _, value in (option.partition("=") for option in options)}
        if not is_synthetic(text) or species not in SPECIES or match is None:
            raise BadDataset(f"{text}: write drawn pets as {_EXAMPLE}; the species are {' and '.join(SPECIES)}")
        if len(values) < len(options) or not values.keys() <= {"seed", "difficulty"}:
            raise BadDataset(f"{text}: only seed=N and difficulty=D may follow the counts, each once, as in {_EXAMPLE}")
        try:
            seed, difficulty = int(values.get("seed", "0")), float(values.get("difficulty", "0.5"))
            return SyntheticSource(species, int(match[1]), int(match[2]), seed, difficulty)
        except ValueError as error:
            raise BadDataset(f"{text}: {error}; write it as {_EXAMPLE}") from error

    def __str__(self) -> str:
        """Format the source as `parse` reads it."""
        return (
            f"{PREFIX}{self.species}:{self.identities}x{self.photos_per_identity}{_options(self.seed, self.difficulty)}"
        )

    def photo(self, row: int) -> SyntheticPhoto:
        """Return a photo, without drawing it.

        Args:
            row: among all photos, which are listed identity by identity; in [0, identities x photos).
        """
        identity, index = divmod(int(row), self.photos_per_identity)
        return SyntheticPhoto(self.species, identity, index, self.seed, self.difficulty)

    def photos(self, identity: int) -> tuple[SyntheticPhoto, ...]:
        """List the photos of one identity, without drawing them.

        Args:
            identity: number of the pet, in [0, `identities`).

        Raises:
            IndexError: there is no such pet.
        """
        if not 0 <= identity < self.identities:
            raise IndexError(f"{self} has no identity {identity}")
        first = identity * self.photos_per_identity
        return tuple(self.photo(first + index) for index in range(self.photos_per_identity))


def is_synthetic(text: str) -> bool:
    """Tell whether a source names drawn pets instead of a folder."""
    return text.startswith(PREFIX)


def _options(seed: int, difficulty: float) -> str:
    return (f":seed={seed}" if seed else "") + (f":difficulty={difficulty}" if difficulty != 0.5 else "")
