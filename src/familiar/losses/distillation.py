"""Learning from a teacher's vectors besides the labels (Hinton et al. 2015, arXiv 1503.02531, on embeddings)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

from familiar.losses.blockwise import unit_prefix


def distillation_loss(embeddings: Float[Tensor, "n d"], taught: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Mean of `1 - cos` between each embedding, of any length, and the vector its teacher gives the photo, in [0, 2].

    Where the teacher's vectors are shorter, k < d, the first k components are to agree with them. ValueError where
    they are longer.
    """
    length = taught.shape[1]
    if length > embeddings.shape[1]:
        raise ValueError(
            f"a teacher's vectors of {length} components cannot be learned in {embeddings.shape[1]}; shorten them first"
        )
    student = unit_prefix(embeddings, length)
    return (1 - cosine_similarity(student, taught.detach().to(student.dtype))).mean()
