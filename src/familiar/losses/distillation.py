"""Distillation: learning a teacher's vectors in addition to the labels.

Hinton et al. 2015 (arXiv 1503.02531), on embeddings instead of class probabilities; their relations as in Tung and Mori
2019 (arXiv 1907.09682), on cosines instead of normalized dot products.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from familiar.losses.blockwise import unit_prefix
from familiar.losses.validation import check_rows


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
    student = _comparable_prefix(embeddings, teacher_embeddings)
    return (1 - cosine_similarity(student, teacher_embeddings.detach().to(student.dtype))).mean()


def relation_loss(embeddings: Float[Tensor, "n d"], teacher_embeddings: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Compute the mean squared difference between the similarities of all pairs and the teacher's.

    Args:
        embeddings: of any length.
        teacher_embeddings: constants, k <= d; if they are shorter, the first k components are compared with them.

    Returns:
        A scalar in [0, 4]; 0 for a single row.

    Raises:
        ValueError: the teacher's vectors are longer.
    """
    student = _comparable_prefix(embeddings, teacher_embeddings)
    teacher = normalize(teacher_embeddings.detach().to(student.dtype), dim=1)
    pairs = len(student) * (len(student) - 1)
    # A row's similarity to itself is 1 for both, so the diagonal adds nothing.
    return (student @ student.T - teacher @ teacher.T).square().sum() / max(pairs, 1)


def _comparable_prefix(
    embeddings: Float[Tensor, "n d"], teacher_embeddings: Float[Tensor, "n k"]
) -> Float[Tensor, "n k"]:
    check_rows(same_width=False, embeddings=embeddings, teacher_embeddings=teacher_embeddings)
    length = teacher_embeddings.shape[1]
    if length > embeddings.shape[1]:
        raise ValueError(
            f"a teacher's vectors of {length} components cannot be learned by embeddings of {embeddings.shape[1]}; "
            "shorten the teacher's vectors first"
        )
    return unit_prefix(embeddings, length)
