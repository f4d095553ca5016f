"""Traits of a drawn pet, from a seeded random vector for each identity. Independent of pixels.

Lengths are in face units: the canvas spans [-1.05, 1.05], x to the right, y down, with the eyes near y = 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float32

from familiar.datasets.synthetic.species import SPECIES, SPECIES_RANGES, Coat, Color, EarShape, Markings, Species

T = TypeVar("T")

VECTOR_LENGTH = 256
_FIELD_SIDE = 7


@dataclass(frozen=True)
class Mark:
    """A permanent spot or scar: center and radius (`reach`), with `angle_rad` for scars."""

    x: float
    y: float
    reach: float
    angle_rad: float
    kind: Literal["dark", "light", "scar"]


@dataclass(frozen=True, eq=False)
class Traits:
    """Everything that the photos of one pet have in common."""

    species: Species
    coat: Coat
    second_coat: Coat
    markings: Markings
    white: float  # extent of white fur: 0 none, 0.3 chin, 0.6 blaze, 1 most of the face
    blaze_half_widths: Float32[np.ndarray, " 6"]  # from the crown to the chin
    blaze_offsets: Float32[np.ndarray, " 6"]
    stripe_frequency: float
    stripe_boldness: float
    stripe_phase: float
    cheek_frequency: float
    cheek_phase: float
    patch_field: Float32[np.ndarray, "7 7"]
    wobble_field: Float32[np.ndarray, "7 7"]
    patch_cover: float
    mask_reach: float
    eye_patches: tuple[float, float]  # dark patch over the left and the right eye, [0, 1]
    spectacles: float  # light fur round the eyes, [0, 1]
    outline: Float32[np.ndarray, " 7"]  # radius of the head from crown to chin
    fur_length: float
    fur_contrast: float
    ear_shape: EarShape
    ear_spacing: float
    ear_width: float
    ear_height: float
    ear_lean: float
    ear_tone: float
    ear_skin: Color
    ear_notch: float
    eye_colors: tuple[Color, Color]
    eye_spacing: float
    eye_y: float
    eye_half_width: float
    eye_roundness: float
    eye_slant_rad: float
    muzzle_half_width: float
    muzzle_height: float
    muzzle_y: float
    muzzle_depth: float
    muzzle_light: float
    nose_color: Color
    nose_half_width: float
    nose_height: float
    nose_y: float
    nose_taper: float
    mouth_width: float
    whiskers: float
    marks: tuple[Mark, ...]


def identity_vector(seed: int, species: Species, identity: int, difficulty: float) -> Float32[np.ndarray, " v"]:
    """Draw `VECTOR_LENGTH` standard normal numbers for an identity.

    A vector drawn for the species and one drawn for the identity are mixed so that any two identities
    correlate with 1 - spread²: 0 at difficulty 0, 0.98 at difficulty 1.
    """
    species_index = SPECIES.index(species)
    # The first word separates the uses of a seed: SeedSequence takes [1, 2] and [1, 2, 0] as equal.
    species_vector = np.random.default_rng([1, seed, species_index]).standard_normal(VECTOR_LENGTH)
    identity_noise = np.random.default_rng([2, seed, species_index, identity]).standard_normal(VECTOR_LENGTH)
    spread = 1.0 - 0.85 * difficulty
    return (math.sqrt(1.0 - spread**2) * species_vector + spread * identity_noise).astype(np.float32)


class _VectorReader:
    """Reads the numbers of an identity vector in order, converted to the distributions that traits need."""

    def __init__(self, vector: Float32[np.ndarray, " v"]) -> None:
        self._vector = vector
        self._next = 0

    def normals(self, count: int) -> Float32[np.ndarray, " n"]:
        values = self._vector[self._next : self._next + count]
        assert len(values) == count, "VECTOR_LENGTH is too small"
        self._next += count
        return values

    def uniform(self) -> float:
        """Read a number uniform in (0, 1)."""
        return 0.5 * (1.0 + math.erf(float(self.normals(1)[0]) / math.sqrt(2.0)))

    def uniform_in(self, low: float, high: float) -> float:
        return low + (high - low) * self.uniform()

    def pick(self, options: Sequence[T]) -> T:
        return options[min(int(self.uniform() * len(options)), len(options) - 1)]

    def pick_weighted(self, probabilities: Mapping[T, float]) -> T:
        """Pick a key with its probability; the probabilities add up to 1."""
        bounds = np.cumsum(list(probabilities.values()))
        return list(probabilities)[min(int(np.searchsorted(bounds, self.uniform())), len(probabilities) - 1)]

    def vary_color(self, color: Color, amount: float) -> Color:
        """Vary a color: brighter or darker, redder or bluer."""
        brightness, warmth = (float(z) for z in np.clip(self.normals(2), -2, 2) * amount)
        red, green, blue = (channel * (1.0 + brightness) for channel in color)
        return min(red * (1 + warmth / 2), 252.0), min(green, 252.0), min(blue * (1 - warmth / 2), 252.0)

    def field(self) -> Float32[np.ndarray, "7 7"]:
        return self.normals(_FIELD_SIDE**2).reshape(_FIELD_SIDE, _FIELD_SIDE)


def random_traits(seed: int, species: Species, identity: int, difficulty: float) -> Traits:
    """Draw the traits of an identity, the same ones for the same arguments.

    Keywords are evaluated in the order written, which decides the number of the vector that each trait gets.
    """
    read = _VectorReader(identity_vector(seed, species, identity, difficulty))
    ranges = SPECIES_RANGES[species]
    coat = _vary_coat(read.pick(ranges.coats), read)
    eye = read.vary_color(read.pick(ranges.eye_colors), 0.08)
    odd_eyed = read.uniform() > 0.96
    eye_spacing = read.uniform_in(*ranges.lengths["eye_spacing"])
    muzzle_y = read.uniform_in(*ranges.lengths["muzzle_y"])
    nose_y = muzzle_y - read.uniform_in(*ranges.lengths["nose_above_muzzle"])
    outline = np.array([read.uniform_in(*ends) for ends in ranges.head_radius], np.float32)
    white = read.uniform()
    return Traits(
        species=species,
        coat=coat,
        second_coat=_vary_coat(read.pick(ranges.coats), read),
        markings=read.pick(coat.markings),
        white=max(0.0, (white - 0.4) / 0.6),
        blaze_half_widths=np.array([0.02, 0.05, 0.1, 0.2, 0.36, 0.4], np.float32) * np.exp(0.55 * read.normals(6)),
        blaze_offsets=np.cumsum(read.normals(6) * 0.035).astype(np.float32),
        stripe_frequency=read.uniform_in(8.0, 15.0),
        stripe_boldness=read.uniform_in(0.65, 1.0),
        stripe_phase=read.uniform_in(0.0, 2 * math.pi),
        cheek_frequency=read.uniform_in(14.0, 26.0),
        cheek_phase=read.uniform_in(0.0, 2 * math.pi),
        patch_field=read.field(),
        wobble_field=read.field(),
        patch_cover=read.uniform_in(0.3, 0.65),
        mask_reach=read.uniform_in(0.24, 0.52),
        eye_patches=(max(0.0, read.uniform_in(-2.0, 1.0)), max(0.0, read.uniform_in(-2.0, 1.0))),
        spectacles=read.uniform_in(0.0, 0.8),
        outline=outline,
        fur_length=read.uniform_in(0.25, 1.0),
        fur_contrast=read.uniform_in(0.1, 0.2),
        ear_shape=read.pick_weighted(ranges.ear_shapes),
        ear_spacing=read.uniform_in(*ranges.lengths["ear_spacing"]),
        ear_width=read.uniform_in(*ranges.lengths["ear_width"]),
        ear_height=read.uniform_in(*ranges.lengths["ear_height"]),
        ear_lean=read.uniform_in(0.0, 0.24),
        ear_tone=read.uniform_in(0.55, 1.1),
        ear_skin=read.vary_color((206, 152, 142), 0.14),
        ear_notch=read.uniform(),
        eye_colors=(eye, read.vary_color(read.pick(ranges.eye_colors), 0.1) if odd_eyed else eye),
        eye_spacing=eye_spacing,
        eye_y=read.uniform_in(*ranges.lengths["eye_y"]),
        eye_half_width=read.uniform_in(*ranges.lengths["eye_half_width"]),
        eye_roundness=read.uniform_in(*ranges.lengths["eye_roundness"]),
        eye_slant_rad=read.uniform_in(*ranges.lengths["eye_slant_rad"]),
        muzzle_half_width=read.uniform_in(*ranges.lengths["muzzle_half_width"]),
        muzzle_height=read.uniform_in(*ranges.lengths["muzzle_height"]),
        muzzle_y=muzzle_y,
        muzzle_depth=read.uniform_in(*ranges.lengths["muzzle_depth"]),
        muzzle_light=read.uniform_in(0.1, 0.9),
        nose_color=read.vary_color(read.pick(ranges.nose_colors), 0.1),
        nose_half_width=read.uniform_in(*ranges.lengths["nose_half_width"]),
        nose_height=read.uniform_in(*ranges.lengths["nose_height"]),
        nose_y=nose_y,
        nose_taper=read.uniform_in(*ranges.lengths["nose_taper"]),
        mouth_width=read.uniform_in(*ranges.lengths["mouth_width"]),
        whiskers=read.uniform_in(*ranges.lengths["whiskers"]),
        marks=tuple(_random_mark(read) for _ in range(4)),
    )


def _vary_coat(coat: Coat, read: _VectorReader) -> Coat:
    return Coat(
        read.vary_color(coat.base, 0.09),
        read.vary_color(coat.dark, 0.1),
        read.vary_color(coat.light, 0.05),
        coat.markings,
    )


def _random_mark(read: _VectorReader) -> Mark:
    return Mark(
        x=read.uniform_in(-0.55, 0.55),
        y=read.uniform_in(-0.45, 0.6),
        reach=read.uniform_in(0.02, 0.13),
        angle_rad=read.uniform_in(0.0, math.pi),
        kind=read.pick(("dark", "dark", "light", "scar")),
    )
