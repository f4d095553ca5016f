"""How learning rate, hyper-parameters and running statistics change over a run: pure functions of numbers."""

import math
import re
from dataclasses import dataclass

BATCH_NORM_MOMENTUM = 0.1  # torch's default


def learning_rate(peak: float, final: float, warmup_epochs: float, epochs: float, at_epoch: float) -> float:
    """Compute a rate with linear warm-up and cosine decay.

    Linear from 0 to `peak` over `warmup_epochs`, then half a cosine to `final` at `epochs`. A warm-up longer than the
    run is cut to it.

    Args:
        peak: the highest rate.
        final: the rate at the end.
        warmup_epochs: length of the warm-up.
        epochs: length of the run.
        at_epoch: counts from 0 and may be a fraction, so that the rate changes with every step.

    >>> [learning_rate(1.0, 0.0, 2, 6, at_epoch) for at_epoch in (0, 1, 2, 4, 6)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warmup_epochs = min(warmup_epochs, epochs)
    if at_epoch < warmup_epochs:
        return peak * at_epoch / warmup_epochs
    if epochs == warmup_epochs:
        return peak
    share = min((at_epoch - warmup_epochs) / (epochs - warmup_epochs), 1.0)
    return final + (peak - final) * 0.5 * (1 + math.cos(math.pi * share))


def decaying_rate(
    peak: float, final: float, warmup_epochs: float, decay: tuple[float, float], at_epoch: float
) -> float:
    """Compute a rate with linear warm-up and exponential decay (Hermans et al. 2017, arXiv 1703.07737, section 4.4).

    Linear from 0 to `peak`, constant until the epoch `decay[0]`, then exponentially down to `final` at `decay[1]`.

    >>> [decaying_rate(1.0, 0.01, 0, (10, 30), at_epoch) for at_epoch in (0, 10, 20, 30, 99)]
    [1.0, 1.0, 0.1, 0.01, 0.01]
    """
    start, end = decay
    if at_epoch < min(warmup_epochs, end):
        return peak * at_epoch / min(warmup_epochs, end)
    if at_epoch <= start or not peak:
        return peak
    return final if at_epoch >= end else peak * (final / peak) ** ((at_epoch - start) / (end - start))


def statistics_momentum(steps_taken: int) -> float:
    """Compute the weight of the newest batch in a batch norm's running statistics.

    Up to ten batches it gives all of them the same weight. With torch's constant 0.1, the initial mean of 0 and
    variance of 1 would still matter after forty steps, and until then evaluation mode would map all photos to nearly
    one point.

    >>> [statistics_momentum(steps) for steps in (0, 1, 3, 9, 500)]
    [1.0, 0.5, 0.25, 0.1, 0.1]
    """
    return max(1.0 / (1 + steps_taken), BATCH_NORM_MOMENTUM)


@dataclass(frozen=True)
class Schedule:
    """A hyper-parameter's values over the epochs; the simplest schedule is a constant.

    Recipes and `--set` write it as text, in one of three forms:

    - `0.4`: constant;
    - `0 to 0.4 over 0.33`: linear over that share of the epochs, then constant;
    - `0.2 + 0.02 every 5 to 1`: a step after every five epochs, up to 1 (without `to`: for ever).

    Attributes:
        start: value in the first epoch.
        end: last value; None: a constant, or steps without a limit.
        over: for the linear form, the share of the epochs after which `end` is reached, in [0, 1].
        step: for the form with steps, what is added each time; may be negative.
        every: for the form with steps, the epochs between two of them; 0: no steps.
    """

    start: float
    end: float | None = None
    over: float = 0.0
    step: float = 0.0
    every: int = 0

    def value_at(self, epoch: int, epochs: int) -> float:
        """Return the value in one epoch of a run.

        Args:
            epoch: counted from 0.
            epochs: length of the run; only the linear form depends on it.

        >>> [Schedule.parse("0 to 0.4 over 0.5").value_at(epoch, 8) for epoch in (0, 2, 4, 7)]
        [0.0, 0.2, 0.4, 0.4]
        >>> [Schedule.parse("64 + 32 every 5").value_at(epoch, 30) for epoch in (0, 4, 5, 29)]
        [64.0, 64.0, 96.0, 224.0]
        """
        if self.every:
            value = self.start + self.step * (epoch // self.every)
            return value if self.end is None else (min if self.step > 0 else max)(value, self.end)
        if self.end is None:
            return self.start
        ramp_epochs = self.over * epochs
        return self.end if epoch >= ramp_epochs else self.start + (self.end - self.start) * epoch / ramp_epochs

    @property
    def varies(self) -> bool:
        """Whether the schedule is not a constant."""
        return self.end is not None or self.every > 0

    @property
    def extremes(self) -> tuple[float, ...]:
        """The bounds of all values; only the start, if the schedule is open-ended."""
        return (self.start,) if self.end is None else (self.start, self.end)

    @staticmethod
    def parse(text: str) -> "Schedule":
        """Parse a schedule.

        Args:
            text: one of the three forms that `Schedule` lists, with finite numbers.

        Raises:
            ValueError: the text has another form, the share of the epochs is not in [0, 1], or the steps lead away from
                the value after `to`; the message shows the forms.
        """
        if match := _RAMP.fullmatch(text.strip()):
            start, end, over = (float(number) for number in match.groups())
            schedule = Schedule(start, end, over=over)
        elif match := _STEPS.fullmatch(text.strip()):
            start, sign, step, every, end = match.groups()
            step = float(step) if sign == "+" else -float(step)
            schedule = Schedule(float(start), float(end) if end else None, step=step, every=int(every))
        else:
            try:
                schedule = Schedule(float(text))
            except ValueError:
                raise ValueError(f"{text!r} is neither a number nor a schedule: {_FORMS}") from None
        finite = all(map(math.isfinite, (*schedule.extremes, schedule.step)))
        if not finite or not 0 <= schedule.over <= 1 or not _steps_towards_end(schedule):
            raise ValueError(f"{text!r} is not a valid schedule: {_FORMS}")
        return schedule

    def __str__(self) -> str:
        numbers = self.start, self.end, self.over, abs(self.step)
        start, end, over, step = map(_shortest_text, numbers)
        if self.every:
            text = f"{start} {'-' if self.step < 0 else '+'} {step} every {self.every}"
            return text if self.end is None else f"{text} to {end}"
        return start if self.end is None else f"{start} to {end} over {over}"


def _steps_towards_end(schedule: Schedule) -> bool:
    """Whether steps lead to the end; steps away from it would jump there at once and stay there."""
    if not schedule.every or schedule.end in (None, schedule.start):
        return True
    return schedule.step > 0 if schedule.end > schedule.start else schedule.step < 0


def _shortest_text(number: float | None) -> str:
    return repr(number).removesuffix(".0")


_FORMS = "use a form such as 0.4, or 0 to 0.4 over 0.33 (of the epochs), or 0.2 + 0.02 every 5 to 1"
_NUMBER = r"(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_RAMP = re.compile(rf"{_NUMBER} +to +{_NUMBER} +over +{_NUMBER}")
_STEPS = re.compile(rf"{_NUMBER} *([+-]) *{_NUMBER} +every +([1-9][0-9]{{0,8}})(?: +to +{_NUMBER})?")
