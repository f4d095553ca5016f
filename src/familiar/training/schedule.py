"""How learning rate, margin and running statistics move over a run. Pure: a number in, a number out."""

import math

BATCH_NORM_MOMENTUM = 0.1  # torch's own


def learning_rate(peak: float, final: float, warmup_epochs: float, epochs: float, at_epoch: float) -> float:
    """Linear from 0 to `peak` over `warmup_epochs`, then half a cosine to `final` at `epochs`.

    `at_epoch` counts from 0 and may be a fraction, so that the rate moves with every step. A warm-up
    longer than the run is cut to it.

    >>> [learning_rate(1.0, 0.0, 2, 6, at) for at in (0, 1, 2, 4, 6)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warmup_epochs = min(warmup_epochs, epochs)
    if at_epoch < warmup_epochs:
        return peak * at_epoch / warmup_epochs
    if epochs == warmup_epochs:
        return peak
    share = min((at_epoch - warmup_epochs) / (epochs - warmup_epochs), 1.0)
    return final + (peak - final) * 0.5 * (1 + math.cos(math.pi * share))


def statistics_momentum(steps_taken: int) -> float:
    """Weight of the newest batch in a batch norm's running statistics: all seen weigh the same, up to ten.

    With torch's constant 0.1 the mean of 0 and variance of 1 that they start from would weigh in for some
    forty steps, and evaluation mode map all photos to nearly one point until then.

    >>> [statistics_momentum(steps) for steps in (0, 1, 3, 9, 500)]
    [1.0, 0.5, 0.25, 0.1, 0.1]
    """
    return max(1.0 / (1 + steps_taken), BATCH_NORM_MOMENTUM)


def warmed_margin(margin: float, warmup_epochs: float, at_epoch: float) -> float:
    """Linear from 0 to `margin` over `warmup_epochs`, then `margin`.

    >>> [warmed_margin(0.4, 4, at) for at in (0, 2, 4, 9)]
    [0.0, 0.2, 0.4, 0.4]
    """
    return margin if at_epoch >= warmup_epochs else margin * at_epoch / warmup_epochs
