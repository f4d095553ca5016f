"""Profiles of hypothesis: how many examples a property test draws.

`fast` (the default) draws the same few in every run, so that a failure is never a matter of luck. `thorough` draws
many, others in each run: `pytest --hypothesis-profile thorough`, as `make test-all` does.
"""

from hypothesis import settings

EXPENSIVE_SHARE = 10

settings.register_profile("fast", max_examples=25, derandomize=True, database=None, deadline=None)
settings.register_profile("thorough", max_examples=50, print_blob=True, deadline=None)
settings.load_profile("fast")


def expensive() -> settings:
    """Draw a tenth of the profile's examples; for tests that take more than some 20 ms an example."""
    return settings(max_examples=max(3, settings().max_examples // EXPENSIVE_SHARE))
