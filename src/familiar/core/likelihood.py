"""Probabilities in words."""

# Minimum probability of each phrase, the most likely first.
LIKELIHOODS = (
    (0.99, "almost certainly"),
    (0.9, "very likely"),
    (0.7, "probably"),
    (0.5, "perhaps"),
    (0.1, "probably not"),
    (0.0, "very unlikely"),
)


def likelihood(probability: float) -> str:
    """Describe a probability in words.

    >>> likelihood(0.95), likelihood(0.5), likelihood(0.02)
    ('very likely', 'perhaps', 'very unlikely')
    """
    return next(words for minimum, words in LIKELIHOODS if probability >= minimum)
