"""Who a drawn pet is: a vector of traits from a seeded generator. Knows nothing of pixels.

Lengths are in face units: the picture of a face spans [-1.05, 1.05], x to the right, y down, the eyes near y = 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float32

Species = Literal["cats", "dogs"]
SPECIES: tuple[Species, ...] = ("cats", "dogs")
Color = tuple[float | int, float | int, float | int]  # RGB, 0 to 255
EarShape = Literal["pointed", "round", "folded", "floppy"]
Markings = Literal["tabby", "solid", "points", "patches", "tan", "mask", "brindle", "merle", "husky"]

T = TypeVar("T")

VECTOR_LENGTH = 256
_FIELD_SIDE = 7


@dataclass(frozen=True)
class Coat:
    """Fur as breeders name it; `markings` lists what this coat comes with, frequent ones more than once."""

    base: Color
    dark: Color
    light: Color
    markings: tuple[Markings, ...]


CAT_COATS = (
    Coat((146, 116, 82), (52, 40, 30), (210, 190, 158), ("tabby", "tabby", "patches")),  # brown
    Coat((150, 148, 142), (50, 50, 52), (216, 213, 208), ("tabby",)),  # silver
    Coat((212, 142, 76), (150, 78, 30), (246, 216, 176), ("tabby", "tabby", "solid")),  # orange
    Coat((230, 204, 166), (196, 148, 100), (250, 236, 214), ("tabby", "solid")),  # cream
    Coat((44, 40, 40), (20, 18, 18), (96, 86, 80), ("solid", "solid", "patches")),  # black
    Coat((112, 118, 128), (74, 78, 88), (160, 164, 170), ("solid", "tabby", "patches")),  # blue
    Coat((238, 233, 224), (206, 196, 182), (250, 248, 244), ("solid", "patches", "patches")),  # white
    Coat((228, 212, 188), (62, 45, 38), (244, 236, 222), ("points",)),  # seal point
    Coat((222, 216, 208), (104, 104, 116), (242, 240, 236), ("points",)),  # blue point
    Coat((232, 214, 190), (190, 122, 70), (246, 236, 222), ("points",)),  # flame point
    Coat((104, 72, 52), (60, 40, 30), (152, 116, 88), ("solid", "tabby")),  # chocolate
)
DOG_COATS = (
    Coat((206, 160, 96), (160, 112, 60), (238, 210, 164), ("solid",)),  # golden
    Coat((42, 38, 37), (22, 20, 20), (172, 108, 56), ("tan", "tan", "solid")),  # black and tan
    Coat((98, 64, 44), (60, 38, 28), (166, 116, 76), ("solid", "tan", "patches")),  # chocolate
    Coat((202, 160, 112), (44, 36, 33), (232, 204, 166), ("mask", "mask", "brindle")),  # fawn
    Coat((122, 120, 120), (46, 46, 50), (240, 238, 234), ("husky",)),  # gray
    Coat((166, 90, 46), (110, 54, 28), (226, 176, 124), ("solid", "mask", "husky")),  # red
    Coat((236, 230, 220), (204, 192, 176), (250, 247, 242), ("patches", "patches", "solid")),  # white
    Coat((150, 156, 166), (48, 48, 54), (206, 210, 216), ("merle",)),  # blue merle
    Coat((112, 84, 60), (46, 35, 28), (176, 140, 102), ("brindle", "mask")),  # brindle
    Coat((222, 192, 146), (184, 148, 100), (246, 228, 196), ("solid", "mask")),  # cream
)
CAT_EYES: tuple[Color, ...] = (
    (226, 178, 50),
    (190, 190, 70),
    (132, 172, 80),
    (96, 158, 128),
    (204, 122, 38),
    (96, 156, 208),
)
DOG_EYES: tuple[Color, ...] = ((66, 40, 24), (96, 58, 30), (132, 84, 40), (168, 118, 54), (140, 180, 214))
CAT_EARS: dict[EarShape, float] = {"pointed": 0.8, "round": 0.1, "folded": 0.1}
DOG_EARS: dict[EarShape, float] = {"floppy": 0.4, "pointed": 0.25, "folded": 0.25, "round": 0.1}
CAT_NOSES: tuple[Color, ...] = ((206, 134, 126), (172, 98, 86), (96, 62, 56), (44, 38, 38))
DOG_NOSES: tuple[Color, ...] = ((30, 28, 29), (42, 36, 35), (86, 56, 46), (128, 88, 78))

# Least and greatest radius of the head, from the crown over the cheeks to the chin.
CAT_HEAD = ((0.52, 0.56, 0.58, 0.60, 0.56, 0.50, 0.50), (0.64, 0.64, 0.70, 0.76, 0.74, 0.64, 0.62))
DOG_HEAD = ((0.52, 0.52, 0.50, 0.48, 0.46, 0.48, 0.54), (0.66, 0.66, 0.66, 0.68, 0.66, 0.64, 0.70))


@dataclass(frozen=True)
class Mark:
    """A spot or a scar that stays where it is: center and reach, `angle_rad` for scars."""

    x: float
    y: float
    reach: float
    angle_rad: float
    kind: Literal["dark", "light", "scar"]


@dataclass(frozen=True, eq=False)
class Traits:
    """All that two photos of one pet share."""

    species: Species
    coat: Coat
    second: Coat
    markings: Markings
    white: float  # how far white spreads: 0 none, 0.3 chin, 0.6 blaze, 1 most of the face
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
    """The identity as `VECTOR_LENGTH` standard normal numbers.

    One vector drawn for the whole species and one for the identity are mixed so that any two identities
    correlate with 1 - spread²: not at all at difficulty 0, by 0.98 at difficulty 1.
    """
    kind = SPECIES.index(species)
    # The leading word tells the uses of a seed apart: SeedSequence takes [1, 2] and [1, 2, 0] for the same.
    common = np.random.default_rng([1, seed, kind]).standard_normal(VECTOR_LENGTH)
    own = np.random.default_rng([2, seed, kind, identity]).standard_normal(VECTOR_LENGTH)
    spread = 1.0 - 0.85 * difficulty
    return (math.sqrt(1.0 - spread**2) * common + spread * own).astype(np.float32)


class _Reader:
    """Hands out an identity vector's numbers one after the other, as what they stand for."""

    def __init__(self, vector: Float32[np.ndarray, " v"]) -> None:
        self._vector = vector
        self._next = 0

    def normals(self, count: int) -> Float32[np.ndarray, " n"]:
        taken = self._vector[self._next : self._next + count]
        assert len(taken) == count, "VECTOR_LENGTH is too small"
        self._next += count
        return taken

    def share(self) -> float:
        """Uniform in (0, 1)."""
        return 0.5 * (1.0 + math.erf(float(self.normals(1)[0]) / math.sqrt(2.0)))

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.share()

    def pick(self, options: Sequence[T]) -> T:
        return options[min(int(self.share() * len(options)), len(options) - 1)]

    def weighted(self, shares: Mapping[T, float]) -> T:
        """A key, as often as its share of 1 says."""
        bounds = np.cumsum(list(shares.values()))
        return list(shares)[min(int(np.searchsorted(bounds, self.share())), len(shares) - 1)]

    def near(self, color: Color, amount: float) -> Color:
        """A color beside this one: brighter or darker, redder or bluer."""
        bright, warm = (float(z) for z in np.clip(self.normals(2), -2, 2) * amount)
        red, green, blue = (channel * (1.0 + bright) for channel in color)
        return min(red * (1 + warm / 2), 252.0), min(green, 252.0), min(blue * (1 - warm / 2), 252.0)

    def field(self) -> Float32[np.ndarray, "7 7"]:
        return self.normals(_FIELD_SIDE**2).reshape(_FIELD_SIDE, _FIELD_SIDE)


def traits(seed: int, species: Species, identity: int, difficulty: float) -> Traits:
    """What the pet with this number looks like."""
    read = _Reader(identity_vector(seed, species, identity, difficulty))
    cat = species == "cats"
    coats = CAT_COATS if cat else DOG_COATS
    coat = _vary(read.pick(coats), read)
    eye = read.near(read.pick(CAT_EYES if cat else DOG_EYES), 0.08)
    odd_eyed = read.share() > 0.96
    eye_spacing = read.between(0.235, 0.31) if cat else read.between(0.19, 0.27)
    muzzle_y = read.between(0.36, 0.43) if cat else read.between(0.36, 0.47)
    nose_y = muzzle_y - read.between(0.11, 0.15) if cat else muzzle_y - read.between(0.08, 0.14)
    low, high = CAT_HEAD if cat else DOG_HEAD
    outline = np.array([read.between(*ends) for ends in zip(low, high, strict=True)], np.float32)
    white = read.share()
    return Traits(
        species=species,
        coat=coat,
        second=_vary(read.pick(coats), read),
        markings=read.pick(coat.markings),
        white=max(0.0, (white - 0.4) / 0.6),
        blaze_half_widths=np.array([0.02, 0.05, 0.1, 0.2, 0.36, 0.4], np.float32) * np.exp(0.55 * read.normals(6)),
        blaze_offsets=np.cumsum(read.normals(6) * 0.035).astype(np.float32),
        stripe_frequency=read.between(8.0, 15.0),
        stripe_boldness=read.between(0.65, 1.0),
        stripe_phase=read.between(0.0, 2 * math.pi),
        cheek_frequency=read.between(14.0, 26.0),
        cheek_phase=read.between(0.0, 2 * math.pi),
        patch_field=read.field(),
        wobble_field=read.field(),
        patch_cover=read.between(0.3, 0.65),
        mask_reach=read.between(0.24, 0.52),
        eye_patches=(max(0.0, read.between(-2.0, 1.0)), max(0.0, read.between(-2.0, 1.0))),
        spectacles=read.between(0.0, 0.8),
        outline=outline,
        fur_length=read.between(0.25, 1.0),
        fur_contrast=read.between(0.1, 0.2),
        ear_shape=read.weighted(CAT_EARS if cat else DOG_EARS),
        ear_spacing=read.between(0.36, 0.5) if cat else read.between(0.33, 0.46),
        ear_width=read.between(0.19, 0.27) if cat else read.between(0.16, 0.24),
        ear_height=read.between(0.36, 0.58) if cat else read.between(0.42, 0.72),
        ear_lean=read.between(0.0, 0.24),
        ear_tone=read.between(0.55, 1.1),
        ear_skin=read.near((206, 152, 142), 0.14),
        ear_notch=read.share(),
        eye_colors=(eye, read.near(read.pick(CAT_EYES if cat else DOG_EYES), 0.1) if odd_eyed else eye),
        eye_spacing=eye_spacing,
        eye_y=read.between(-0.04, 0.05) if cat else read.between(-0.12, 0.0),
        eye_half_width=read.between(0.115, 0.165) if cat else read.between(0.075, 0.11),
        eye_roundness=read.between(0.62, 1.0) if cat else read.between(0.6, 0.9),
        eye_slant_rad=read.between(-0.05, 0.38) if cat else read.between(-0.25, 0.25),
        muzzle_half_width=read.between(0.15, 0.22) if cat else read.between(0.2, 0.31),
        muzzle_height=read.between(0.12, 0.17) if cat else read.between(0.19, 0.27),
        muzzle_y=muzzle_y,
        muzzle_depth=read.between(0.12, 0.3) if cat else read.between(0.3, 0.75),
        muzzle_light=read.between(0.1, 0.9),
        nose_color=read.near(read.pick(CAT_NOSES if cat else DOG_NOSES), 0.1),
        nose_half_width=read.between(0.062, 0.095) if cat else read.between(0.095, 0.15),
        nose_height=read.between(0.05, 0.075) if cat else read.between(0.075, 0.115),
        nose_y=nose_y,
        nose_taper=read.between(0.1, 0.35) if cat else read.between(0.45, 0.75),
        mouth_width=read.between(0.1, 0.17) if cat else read.between(0.15, 0.24),
        whiskers=read.between(0.3, 1.0) if cat else read.between(0.0, 0.3),
        marks=tuple(_mark(read) for _ in range(4)),
    )


def _vary(coat: Coat, read: _Reader) -> Coat:
    return Coat(read.near(coat.base, 0.09), read.near(coat.dark, 0.1), read.near(coat.light, 0.05), coat.markings)


def _mark(read: _Reader) -> Mark:
    return Mark(
        x=read.between(-0.55, 0.55),
        y=read.between(-0.45, 0.6),
        reach=read.between(0.02, 0.13),
        angle_rad=read.between(0.0, math.pi),
        kind=read.pick(("dark", "dark", "light", "scar")),
    )
