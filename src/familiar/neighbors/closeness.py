"""How close two groups count as. Knows nothing of how groups are found."""

import numpy as np
from jaxtyping import Float, Int

# Both chosen on cats, ORL and LFW (docs/clustering.md).
STRICTER = 0.15
"""How much more is asked of two groups for each doubling of the smaller: at a cosine of one half, a quarter of it."""
FULL_SIZE = 16
"""Rows from which on a group counts as no larger."""


def closeness(cosine: Float[np.ndarray, " g"], smaller: Int[np.ndarray, " g"]) -> Float[np.ndarray, " g"]:
    """The cosine of two groups' means, held against how many rows there are in the smaller of the two.

    The mean of many rows has less of their chance in it, so the means of two halves of one individual are more alike
    than two single rows, and more is asked of them: `c - .15 log2(min(smaller, 16)) c (1 - c)`. Two single rows are as
    close as they are similar; so is what leaves no doubt, a cosine of 0 or less, or of 1. It rises with the cosine
    throughout, from -1 to 1, and falls with the size.
    """
    doublings = np.log2(np.minimum(smaller, FULL_SIZE))
    return (cosine - STRICTER * doublings * np.maximum(cosine, 0.0) * (1.0 - cosine)).astype(cosine.dtype)
