"""Distillation: learning a teacher's vectors in addition to the labels.

Hinton et al. 2015 (arXiv 1503.02531), on embeddings instead of class probabilities.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from familiar.losses.blockwise import unit_prefix


def distillation_loss(embeddings: Float[Tensor, "n d"], teacher_embeddings: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Compute the mean of `1 - cos` between each embedding and the teacher's vector of the same photo.

    Args:
        embeddings: of any length.
        teacher_embeddings: constants, k <= d; if they are shorter, the first k components are compared with them.

    Returns:
        A scalar in [0, 2].

    Raises:
        ValueError: the teacher's vectors are longer.
    """
    length = teacher_embeddings.shape[1]
    if length > embeddings.shape[1]:
        raise ValueError(
            f"a teacher's vectors of {length} components cannot be learned by embeddings of {embeddings.shape[1]}; "
            "shorten the teacher's vectors first"
        )
    student = unit_prefix(embeddings, length)
    return (1 - cosine_similarity(student, teacher_embeddings.detach().to(student.dtype))).mean()
