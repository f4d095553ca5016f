"""Settings of augmentation, and the published presets."""

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from familiar.core.settings import Checked, setting

MAX_HOLES = 8
BLUR_CROP_PX = 224  # the crop that the sizes of a scaled blur are for
MAX_BLUR_KERNEL_PX = 31  # the limit of mirrored borders in a crop of 16 px, the smallest

CUSTOM_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True)
class Augmentation(Checked):
    """Probabilities and ranges of the operations, applied in this order; a probability of 0 disables one.

    The defaults are those of the mobile pet embedder.

    Attributes:
        crop_p: probability of cutting out a random box, which is enlarged to the whole crop.
        crop_scale_min: smallest share of the crop's area in the box, in [0.01, 1]; the largest is 1.
        crop_ratio_min: smallest width / height of the box, in [0.1, 10].
        crop_ratio_max: largest width / height of the box, in [0.1, 10].
        rotate_p: probability of a rotation.
        rotate_deg: largest angle in either direction, in degrees, in [0, 180].
        flip_p: probability of swapping left and right.
        affine_p: probability of a shift and a scaling, applied together.
        translate: largest shift in each direction, as a share of the crop's side, in [0, 0.99].
        scale: the scaling is by a factor in [1 - `scale`, 1 + `scale`]; in [0, 0.99].
        jitter_p: probability of a change of brightness, contrast, saturation and hue, in random order.
        brightness: its factor is in [1 - `brightness`, 1 + `brightness`]; in [0, 0.99].
        contrast: its factor is in [1 - `contrast`, 1 + `contrast`]; in [0, 0.99].
        saturation: its factor is in [1 - `saturation`, 1 + `saturation`]; in [0, 0.99].
        hue: largest rotation of the hue in either direction, in turns, in [0, 0.5].
        gray_p: probability of a conversion to gray.
        blur_p: probability of a Gaussian blur.
        blur_kernel_min: smallest width of its kernel, in px, odd, in [1, 31].
        blur_kernel_max: largest width of its kernel, in px, odd, in [1, 31].
        blur_sigma_min: smallest standard deviation of the blur, in px, in [0, 20].
        blur_sigma_max: largest standard deviation of the blur, in px, in [0, 20]; 0 derives it from the kernel's width.
        blur_scaled: whether the sizes of the blur are for a crop of 224 px and scaled in proportion to other crops, so
            that a face is blurred as much at any size; otherwise they are pixels of the crop.
        sharpness_p: probability of a change of sharpness.
        sharpness_min: smallest factor of the sharpness, in [0, 20]: 0 smooths, 1 changes nothing, 10 sharpens strongly.
        sharpness_max: largest factor of the sharpness, in [0, 20].
        noise_p: probability of Gaussian noise.
        noise_std_min: smallest standard deviation of the noise, as a share of the full range of values, in [0, 1].
        noise_std_max: largest standard deviation of the noise, as a share of the full range of values, in [0, 1].
        jpeg_p: probability of JPEG compression.
        jpeg_quality_min: lowest JPEG quality, in [1, 100].
        jpeg_quality_max: highest JPEG quality, in [1, 100].
        downscale_p: probability of a loss of resolution: the crop is reduced and enlarged again.
        downscale_min: smallest share of the side that it is reduced to, in [0.01, 1].
        downscale_max: largest share of the side that it is reduced to, in [0.01, 1].
        shadow_p: probability of a cast shadow.
        shadow_min: smallest share of the light that the shadow removes, in [0, 1].
        shadow_max: largest share of the light that the shadow removes, in [0, 1].
        dropout_p: probability of black rectangular holes.
        dropout_holes_min: smallest number of holes, in [1, 8].
        dropout_holes_max: largest number of holes, in [1, 8].
        dropout_side_min: smallest width and height of a hole, as a share of the crop's side, in [0, 1].
        dropout_side_max: largest width and height of a hole, as a share of the crop's side, in [0, 1].
        erase_p: probability of erasing one box, which is filled with black.
        erase_area_min: smallest share of the crop's area that is erased, in [0, 1].
        erase_area_max: largest share of the crop's area that is erased, in [0, 1].
        erase_ratio_min: smallest width / height of the erased box, in [0.1, 10].
        erase_ratio_max: largest width / height of the erased box, in [0.1, 10].
        custom: `MODULE:FUNCTION`, a Python function that changes each training crop after the operations; empty for
            none. It takes an RGB array (uint8, "s s 3") and a NumPy generator, and returns such an array.

    Raises:
        ValueError: a setting is out of range; the message names it.
    """

    crop_p: float = setting(0.0, 0, 1)
    crop_scale_min: float = setting(0.9, 0.01, 1)
    crop_ratio_min: float = setting(0.9, 0.1, 10)
    crop_ratio_max: float = setting(1.1, 0.1, 10)
    rotate_p: float = setting(0.5, 0, 1)
    rotate_deg: float = setting(25.0, 0, 180)
    flip_p: float = setting(0.5, 0, 1)
    affine_p: float = setting(0.3, 0, 1)
    translate: float = setting(0.1, 0, 0.99)
    scale: float = setting(0.15, 0, 0.99)
    jitter_p: float = setting(0.5, 0, 1)
    brightness: float = setting(0.3, 0, 0.99)
    contrast: float = setting(0.3, 0, 0.99)
    saturation: float = setting(0.3, 0, 0.99)
    hue: float = setting(0.1, 0, 0.5)
    gray_p: float = setting(0.05, 0, 1)
    blur_p: float = setting(0.2, 0, 1)
    blur_kernel_min: int = setting(3, 1, MAX_BLUR_KERNEL_PX)
    blur_kernel_max: int = setting(9, 1, MAX_BLUR_KERNEL_PX)
    blur_sigma_min: float = setting(0.0, 0, 20)
    blur_sigma_max: float = setting(0.0, 0, 20)
    blur_scaled: bool = True
    sharpness_p: float = setting(0.0, 0, 1)
    sharpness_min: float = setting(0.0, 0, 20)
    sharpness_max: float = setting(2.0, 0, 20)
    noise_p: float = setting(0.2, 0, 1)
    noise_std_min: float = setting(0.01, 0, 1)
    noise_std_max: float = setting(0.05, 0, 1)
    jpeg_p: float = setting(0.2, 0, 1)
    jpeg_quality_min: int = setting(70, 1, 100)
    jpeg_quality_max: int = setting(100, 1, 100)
    downscale_p: float = setting(0.15, 0, 1)
    downscale_min: float = setting(0.4, 0.01, 1)
    downscale_max: float = setting(0.8, 0.01, 1)
    shadow_p: float = setting(0.1, 0, 1)
    shadow_min: float = setting(0.3, 0, 1)
    shadow_max: float = setting(0.6, 0, 1)
    dropout_p: float = setting(0.3, 0, 1)
    dropout_holes_min: int = setting(1, 1, MAX_HOLES)
    dropout_holes_max: int = setting(4, 1, MAX_HOLES)
    dropout_side_min: float = setting(16 / 224, 0, 1)
    dropout_side_max: float = setting(48 / 224, 0, 1)
    erase_p: float = setting(0.0, 0, 1)
    erase_area_min: float = setting(0.02, 0, 1)
    erase_area_max: float = setting(0.1, 0, 1)
    erase_ratio_min: float = setting(0.3, 0.1, 10)
    erase_ratio_max: float = setting(3.3, 0.1, 10)
    custom: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        values = vars(self)
        for name, value in values.items():
            upper = name.removesuffix("_min") + "_max"
            if name.endswith("_min") and value > values.get(upper, value):
                raise ValueError(f"{name} must be at most {upper} ({values[upper]}), not {value}")
        for name in ("blur_kernel_min", "blur_kernel_max"):
            if values[name] % 2 == 0:
                raise ValueError(f"{name} must be odd, not {values[name]}")
        if self.custom and not CUSTOM_FUNCTION.fullmatch(self.custom):
            raise ValueError(f"custom must be MODULE:FUNCTION, such as my_photos:sharpen, not {self.custom!r}")

    @property
    def changes_photos(self) -> bool:
        """Whether any operation has a probability above 0, or a function of the user changes photos."""
        return bool(self.custom) or any(getattr(self, name) > 0 for name in PROBABILITIES)


PROBABILITIES = tuple(declared.name for declared in fields(Augmentation) if declared.name.endswith("_p"))
_NEVER: dict[str, Any] = dict.fromkeys(PROBABILITIES, 0.0)
NO_AUGMENTATION = Augmentation(**_NEVER)

# The circle-loss project's list for faces at 112 px (`recipes.circle`). Its random crop is taken from the whole photo,
# resized to 128 px: `input.train_on_whole`.
CIRCLE_AUGMENTATION = replace(
    NO_AUGMENTATION,
    crop_p=1.0,
    flip_p=0.3,
    jitter_p=1.0,
    brightness=0.2,
    contrast=0.2,
    saturation=0.1,
    hue=0.05,
    gray_p=0.1,
    blur_p=1.0,
    blur_kernel_max=3,
    blur_sigma_min=0.1,
    blur_sigma_max=2.0,
    blur_scaled=False,  # the project's kernel of 3 px is for crops of 112 px
    erase_p=0.2,
)

AUGMENTATIONS = {"pet": Augmentation(), "circle": CIRCLE_AUGMENTATION, "none": NO_AUGMENTATION}
