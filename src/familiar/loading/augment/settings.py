"""Settings of augmentation, and the published presets."""

from dataclasses import dataclass, replace
from typing import Literal

MAX_HOLES = 8
MAX_BLUR_KERNEL_PX = 31  # the limit of mirrored borders in a crop of 16 px, the smallest

RANGES = {  # of the settings that are not probabilities
    "crop_scale_min": (0.01, 1),
    "crop_ratio_min": (0.1, 10),
    "crop_ratio_max": (0.1, 10),
    "rotate_deg": (0, 180),
    "translate": (0, 0.99),
    "scale": (0, 0.99),
    "brightness": (0, 0.99),
    "contrast": (0, 0.99),
    "saturation": (0, 0.99),
    "hue": (0, 0.5),
    "blur_kernel_min": (1, MAX_BLUR_KERNEL_PX),
    "blur_kernel_max": (1, MAX_BLUR_KERNEL_PX),
    "blur_sigma_min": (0, 20),
    "blur_sigma_max": (0, 20),
    "noise_std_min": (0, 1),
    "noise_std_max": (0, 1),
    "jpeg_quality_min": (1, 100),
    "jpeg_quality_max": (1, 100),
    "downscale_min": (0.01, 1),
    "downscale_max": (0.01, 1),
    "shadow_min": (0, 1),
    "shadow_max": (0, 1),
    "dropout_holes_min": (1, MAX_HOLES),
    "dropout_holes_max": (1, MAX_HOLES),
    "dropout_side_min": (0, 1),
    "dropout_side_max": (0, 1),
    "erase_area_min": (0, 1),
    "erase_area_max": (0, 1),
    "erase_ratio_min": (0.1, 10),
    "erase_ratio_max": (0.1, 10),
}


@dataclass(frozen=True)
class Augmentation:
    """Probabilities and ranges of the operations, applied in this order; a probability of 0 disables one.

    The defaults are those of the mobile pet embedder, with sizes in pixels for a crop of 224 px. Units:

    - shares are of the crop's side; those of `crop_scale` and `erase_area` are of its area;
    - ratios are width / height;
    - `scale`, `brightness`, `contrast` and `saturation` are half-widths around 1, `translate` and `hue` around 0,
      hue in turns;
    - `blur_kernel` is odd, in pixels; if `blur_sigma_max` is 0, sigma is derived from the kernel;
    - `noise_std` is a share of full scale, `downscale` of the resolution, `shadow` of the light removed;
    - `where` is "loader" (each photo while loading) or "device" (batches on the training device).

    Raises:
        ValueError: a setting is out of range; the message names it.
    """

    crop_p: float = 0.0
    crop_scale_min: float = 0.9
    crop_ratio_min: float = 0.9
    crop_ratio_max: float = 1.1
    rotate_p: float = 0.5
    rotate_deg: float = 25.0
    flip_p: float = 0.5
    affine_p: float = 0.3
    translate: float = 0.1
    scale: float = 0.15
    jitter_p: float = 0.5
    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    hue: float = 0.1
    gray_p: float = 0.05
    blur_p: float = 0.2
    blur_kernel_min: int = 3
    blur_kernel_max: int = 9
    blur_sigma_min: float = 0.0
    blur_sigma_max: float = 0.0
    noise_p: float = 0.2
    noise_std_min: float = 0.01
    noise_std_max: float = 0.05
    jpeg_p: float = 0.2
    jpeg_quality_min: int = 70
    jpeg_quality_max: int = 100
    downscale_p: float = 0.15
    downscale_min: float = 0.4
    downscale_max: float = 0.8
    shadow_p: float = 0.1
    shadow_min: float = 0.3
    shadow_max: float = 0.6
    dropout_p: float = 0.3
    dropout_holes_min: int = 1
    dropout_holes_max: int = 4
    dropout_side_min: float = 16 / 224
    dropout_side_max: float = 48 / 224
    erase_p: float = 0.0
    erase_area_min: float = 0.02
    erase_area_max: float = 0.1
    erase_ratio_min: float = 0.3
    erase_ratio_max: float = 3.3
    where: Literal["loader", "device"] = "loader"

    def __post_init__(self) -> None:
        values = vars(self)
        for name, value in values.items():
            if name.endswith("_p") and not 0 <= value <= 1:
                raise ValueError(f"{name} is a probability and must be in [0, 1], got {value}")
        for name, (low, high) in RANGES.items():
            if not low <= values[name] <= high:
                raise ValueError(f"{name} must be in [{low:g}, {high:g}], got {values[name]}")
        for name, value in values.items():
            upper = name.removesuffix("_min") + "_max"
            if name.endswith("_min") and value > values.get(upper, value):
                raise ValueError(f"{name} must be at most {upper} ({values[upper]}), got {value}")
        for name in ("blur_kernel_min", "blur_kernel_max"):
            if values[name] % 2 == 0:
                raise ValueError(f"{name} must be odd, got {values[name]}")
        if self.where not in ("loader", "device"):
            raise ValueError(f"where must be 'loader' or 'device', got {self.where!r}")


NO_AUGMENTATION = Augmentation(
    crop_p=0.0,
    rotate_p=0.0,
    flip_p=0.0,
    affine_p=0.0,
    jitter_p=0.0,
    gray_p=0.0,
    blur_p=0.0,
    noise_p=0.0,
    jpeg_p=0.0,
    downscale_p=0.0,
    shadow_p=0.0,
    dropout_p=0.0,
    erase_p=0.0,
)

# The circle-loss project's list for faces at 112 px (`recipes.circle`). Its random crop is taken from a photo
# resized to 128 px, which corresponds to the whole crop here.
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
    erase_p=0.2,
)

AUGMENTATIONS = {"pet": Augmentation(), "circle": CIRCLE_AUGMENTATION, "none": NO_AUGMENTATION}
