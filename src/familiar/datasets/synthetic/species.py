"""The two species of drawn pets: their coats, and the ranges of their traits, in face units (`traits`)."""

from dataclasses import dataclass
from typing import Literal

Species = Literal["cats", "dogs"]
SPECIES: tuple[Species, ...] = ("cats", "dogs")
Range = tuple[float, float]  # lowest and highest value
Color = tuple[float | int, float | int, float | int]  # RGB, 0 to 255
EarShape = Literal["pointed", "round", "folded", "floppy"]
Markings = Literal["tabby", "solid", "points", "patches", "tan", "mask", "brindle", "merle", "husky"]


@dataclass(frozen=True)
class Coat:
    """A fur color as breeders name it. `markings` lists the possible patterns, frequent ones more than once."""

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


@dataclass(frozen=True)
class SpeciesRanges:
    """The options and the ranges from which the traits of one species are drawn."""

    coats: tuple[Coat, ...]
    eye_colors: tuple[Color, ...]
    ear_shapes: dict[EarShape, float]  # probabilities, 1 in all
    nose_colors: tuple[Color, ...]
    head_radius: tuple[Range, ...]  # from the crown over the cheeks to the chin
    lengths: dict[str, Range]  # of the other traits, by name


_LENGTHS: dict[str, tuple[Range, Range]] = {  # of cats, of dogs
    "ear_spacing": ((0.36, 0.5), (0.33, 0.46)),
    "ear_width": ((0.19, 0.27), (0.16, 0.24)),
    "ear_height": ((0.36, 0.58), (0.42, 0.72)),
    "eye_spacing": ((0.235, 0.31), (0.19, 0.27)),
    "eye_y": ((-0.04, 0.05), (-0.12, 0.0)),
    "eye_half_width": ((0.115, 0.165), (0.075, 0.11)),
    "eye_roundness": ((0.62, 1.0), (0.6, 0.9)),
    "eye_slant_rad": ((-0.05, 0.38), (-0.25, 0.25)),
    "muzzle_half_width": ((0.15, 0.22), (0.2, 0.31)),
    "muzzle_height": ((0.12, 0.17), (0.19, 0.27)),
    "muzzle_y": ((0.36, 0.43), (0.36, 0.47)),
    "muzzle_depth": ((0.12, 0.3), (0.3, 0.75)),
    "nose_above_muzzle": ((0.11, 0.15), (0.08, 0.14)),
    "nose_half_width": ((0.062, 0.095), (0.095, 0.15)),
    "nose_height": ((0.05, 0.075), (0.075, 0.115)),
    "nose_taper": ((0.1, 0.35), (0.45, 0.75)),
    "mouth_width": ((0.1, 0.17), (0.15, 0.24)),
    "whiskers": ((0.3, 1.0), (0.0, 0.3)),
}
SPECIES_RANGES: dict[Species, SpeciesRanges] = {
    "cats": SpeciesRanges(
        CAT_COATS,
        eye_colors=((226, 178, 50), (190, 190, 70), (132, 172, 80), (96, 158, 128), (204, 122, 38), (96, 156, 208)),
        ear_shapes={"pointed": 0.8, "round": 0.1, "folded": 0.1},
        nose_colors=((206, 134, 126), (172, 98, 86), (96, 62, 56), (44, 38, 38)),
        head_radius=((0.52, 0.64), (0.56, 0.64), (0.58, 0.7), (0.6, 0.76), (0.56, 0.74), (0.5, 0.64), (0.5, 0.62)),
        lengths={name: ranges[0] for name, ranges in _LENGTHS.items()},
    ),
    "dogs": SpeciesRanges(
        DOG_COATS,
        eye_colors=((66, 40, 24), (96, 58, 30), (132, 84, 40), (168, 118, 54), (140, 180, 214)),
        ear_shapes={"floppy": 0.4, "pointed": 0.25, "folded": 0.25, "round": 0.1},
        nose_colors=((30, 28, 29), (42, 36, 35), (86, 56, 46), (128, 88, 78)),
        head_radius=((0.52, 0.66), (0.52, 0.66), (0.5, 0.66), (0.48, 0.68), (0.46, 0.66), (0.48, 0.64), (0.54, 0.7)),
        lengths={name: ranges[1] for name, ranges in _LENGTHS.items()},
    ),
}
