"""Classifiers over identities whose weights are class centres on the sphere: ArcFace (arXiv 1801.07698).

Knows nothing of images or networks.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize


def arcface_logits(
    cosines: Float[Tensor, "n classes"], labels: Int64[Tensor, " n"], margin_rad: float, scale: float
) -> Float[Tensor, "n classes"]:
    """Scaled cosines with `margin_rad` added to the angle of each row's own class.

    Own class: `scale * cos(theta + margin)`. Past `theta > pi - margin` that would rise again, so there it
    is `scale * (cos(theta) - margin * sin(margin))`, which goes on falling for margins under 2.33 (it steps
    down at the seam by `cos(m) + m sin(m) - 1`). Other classes: `scale * cos(theta)`.
    """
    target = cosines.gather(1, labels[:, None]).squeeze(1)
    # At |cos| = 1 the sine's gradient is infinite: 0 * inf would put NaN into every weight.
    sine = (1.0 - target.square()).clamp_min(1e-7).sqrt()
    shifted = target * math.cos(margin_rad) - sine * math.sin(margin_rad)
    penalised = target - margin_rad * math.sin(margin_rad)
    with_margin = torch.where(target > -math.cos(margin_rad), shifted, penalised)
    return scale * cosines.scatter(1, labels[:, None], with_margin[:, None])


class ArcFace(nn.Module):
    """Additive angular margin softmax over `classes` identities.

    `margin_rad` in [0, 2.33] radians and may be changed between steps (margin warm-up); `scale` above 0;
    `label_smoothing` in [0, 1) spreads that share of the target over all classes.
    """

    def __init__(
        self,
        embedding_dim: int,
        classes: int,
        scale: float = 32.0,
        margin_rad: float = 0.4,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if not (scale > 0 and 0 <= margin_rad <= 2.33 and 0 <= label_smoothing < 1):
            raise ValueError(
                f"scale {scale}, margin_rad {margin_rad} or label_smoothing {label_smoothing} out of range"
            )
        self.scale = scale
        self.margin_rad = margin_rad
        self.label_smoothing = label_smoothing
        self.centres = nn.Parameter(torch.empty(classes, embedding_dim))
        nn.init.normal_(self.centres, std=0.01)  # only the direction counts

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of unit `embeddings` against `labels` in [0, classes). An empty batch gives zero."""
        if embeddings.shape[0] == 0:
            return embeddings.sum() + 0.0 * self.centres.sum()
        # bfloat16 keeps eight bits of a cosine: too few for an angle, so autocast stays out of here.
        with torch.autocast(embeddings.device.type, enabled=False):
            wide = torch.promote_types(embeddings.dtype, torch.float32)
            cosines = linear(normalize(embeddings.to(wide)), normalize(self.centres.to(wide)))
            logits = arcface_logits(cosines.clamp(-1.0, 1.0), labels, self.margin_rad, self.scale)
            return cross_entropy(logits, labels, label_smoothing=self.label_smoothing)
