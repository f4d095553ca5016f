"""Views: what a network looks at besides the whole crop, and averages, when it embeds."""

import re
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

_TEXT = re.compile(r"(?P<share>1|0?\.\d+)@(?P<size_px>\d+)(?P<mirrored>m?)")


@dataclass(frozen=True)
class View:
    """The middle of a crop, resized, and perhaps mirrored.

    Features of several sizes together recognize better than those of any one: the smaller the photo, the more of a face
    each feature sees.

    Attributes:
        share: side of the middle square, as a share of the crop's side, in (0, 1].
        size_px: side to which it is resized.
        mirrored: whether left and right are swapped.
    """

    share: float
    size_px: int
    mirrored: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"a view's share of the side must be in (0, 1], not {self.share:g}")
        if not 16 <= self.size_px <= 1024:
            raise ValueError(f"a view's side must be in [16, 1024] px, not {self.size_px}")

    @staticmethod
    def parse(text: str) -> "View":
        """Parse a view.

        Args:
            text: `SHARE@PX`, such as "0.8@224", followed by "m" for the mirror image.

        Raises:
            ValueError: the text has another form, or a number is out of range.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"a view is SHARE@PX or SHARE@PXm, such as 1@224 or 0.8@160m, not {text!r}")
        return View(float(match["share"]), int(match["size_px"]), bool(match["mirrored"]))

    def apply(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n 3 p p"]:
        """Return this view of standardized crops."""
        side = images.shape[-1]
        length = round(side * self.share)
        if length < side:
            start = (side - length) // 2
            images = images[:, :, start : start + length, start : start + length]
        if length != self.size_px:
            images = interpolate(images, (self.size_px, self.size_px), mode="bilinear", align_corners=False)
        return images.flip(3) if self.mirrored else images
