"""Margins of classifiers: functions of the cosine between a row and the center of its own class.

Angle and margin together may exceed pi, where `cos` would rise again. Beyond that *switch angle* another formula takes
over, so that each function falls with the angle everywhere; `branch` selects it. "penalty": the cosine minus a
constant, with a step down at the switch angle. "continuous": the mirrored formula `-2 - cos(phi)` (as in SphereFace,
arXiv 1704.08063), whose value and slope match there.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from familiar.losses.validation import check_batch

Branch = Literal["penalty", "continuous"]
PENALTY_MARGIN_RAD = 2.33  # from 2.3311 on cos(m) + m sin(m) - 1 is negative: the penalty would step up


def arcface_cosine(cosines: Float[Tensor, " n"], margin_rad: float, branch: Branch = "penalty") -> Float[Tensor, " n"]:
    """Compute `cos(theta + margin)` (ArcFace, arXiv 1801.07698, Eq. 3).

    For `theta > pi - margin`: `cos(theta) - margin * sin(margin)`, which is lower there by `cos(m) + m sin(m) - 1`, or
    `-2 - cos(theta + margin)`.

    Args:
        cosines: cos(theta), in [-1, 1].
        margin_rad: in radians.
        branch: the formula for `theta > pi - margin`.
    """
    shifted = cosines * math.cos(margin_rad) - _sine(cosines) * math.sin(margin_rad)
    beyond = cosines - margin_rad * math.sin(margin_rad) if branch == "penalty" else -2.0 - shifted
    return torch.where(cosines > -math.cos(margin_rad), shifted, beyond)


def combined_cosine(
    cosines: Float[Tensor, " n"],
    margin_factor: float,
    margin_rad: float,
    margin: float,
    branch: Branch = "penalty",
) -> Float[Tensor, " n"]:
    """Compute `cos(margin_factor * theta + margin_rad) - margin` (ArcFace, arXiv 1801.07698, Eq. 4).

    Past `phi = margin_factor * theta + margin_rad = pi`, before `margin` is subtracted: `cos(theta) - m sin(m)`
    with `m = penalty_margin_rad(...)`, or `(-1)^k cos(phi) - 2k` with `k = floor(phi / pi)`.

    Args:
        cosines: cos(theta), in [-1, 1].
        margin_factor: 1 or more.
        margin_rad: in radians.
        margin: in cosine.
        branch: the formula past `phi = pi`.
    """
    # The angle from both sides: acos alone has an infinite slope at |cos| = 1.
    phi = margin_factor * torch.atan2(_sine(cosines), cosines) + margin_rad
    if branch == "penalty":
        equivalent_rad = equivalent_margin_rad(margin_factor, margin_rad)
        falling = torch.where(phi < math.pi, phi.cos(), cosines - equivalent_rad * math.sin(equivalent_rad))
    else:
        half_turns = (phi.detach() / math.pi).floor()
        falling = (1.0 - 2.0 * (half_turns % 2.0)) * phi.cos() - 2.0 * half_turns
    return falling - margin


def equivalent_margin_rad(margin_factor: float, margin_rad: float) -> float:
    """Return pi minus the switch angle: the margin with which ArcFace has the same switch angle.

    >>> equivalent_margin_rad(1.0, 0.4)
    0.4
    """
    return math.pi - (math.pi - margin_rad) / margin_factor if margin_factor != 1 else margin_rad


def arcface_logits(
    cosines: Float[Tensor, "n classes"],
    labels: Int64[Tensor, " n"],
    margin_rad: float,
    scale: float,
    branch: Branch = "penalty",
) -> Float[Tensor, "n classes"]:
    """Compute the logits of `ArcFace`, for plots and tests: training does not call this.

    Training applies the margin within the loss, in `losses.cross_entropy`.

    Args:
        cosines: of the angles between each row and each class center, in [-1, 1].
        labels: the class of each row, in [0, classes).
        margin_rad: in [0, 2.33] radians, or [0, pi] with `branch="continuous"`.
        scale: factor of the cosines, above 0.
        branch: as in `ArcFace`.

    Returns:
        Scaled cosines, with `margin_rad` added to the angle of each row's own class (see `arcface_cosine`).
    """
    check_batch(cosines, labels, name="cosines")
    target_cosines = arcface_cosine(cosines.gather(1, labels[:, None]).squeeze(1), margin_rad, branch)
    return scale * cosines.scatter(1, labels[:, None], target_cosines[:, None])


def check_penalty(branch: Branch, margin_rad: float, margin_factor: float = 1.0) -> None:
    """Raise ValueError if the penalty would step up at the switch angle; the continuous branch always falls."""
    largest_factor = (math.pi - margin_rad) / (math.pi - PENALTY_MARGIN_RAD)
    if branch == "penalty" and margin_factor > largest_factor:
        wrong = f"margin_rad must be in [0, {PENALTY_MARGIN_RAD}], not {margin_rad}"
        if margin_factor != 1:
            wrong = f"margin_factor must be in [1, {largest_factor:.4g}], not {margin_factor}"
        raise ValueError(f"{wrong}; branch=continuous allows more")


def _sine(cosines: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    # At |cos| = 1 the root's gradient is infinite: 0 * inf would put NaN into every weight.
    return (1.0 - cosines.square()).clamp_min(torch.finfo(cosines.dtype).eps).sqrt()
