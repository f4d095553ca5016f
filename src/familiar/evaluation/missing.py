"""Explain why a single metric is None where the rest of its suite could be computed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

REASONS = {  # by the end of the metric's path
    **{rf"tar_at_far\.1e-{n}": f"takes {10 ** (n + 1):,} pairs of different identities" for n in (2, 3, 4)},
    **{rf"dir_at_far\.1e-{n}": f"takes {10 ** (n + 1):,} unknown photos" for n in (1, 2, 3)},
    r"recall_at_\d+|ndcg_at_10|rank_\d+": "there are no more candidates than this rank, or no identity has two photos",
    r"probability(\.calibration_error)?|on_validation\.(far|tar)": "the bundle was never calibrated, or the router has "
    "several bundles",
    r"pairwise|bcubed": "no identity has two photos",
    r"dunn\.\w+": "every identity is one point",
    r"d_prime": "the similarities do not vary",
    r"precision": "no two photos were put into one group",
    r"(recall_at_1|auc)(_drop|_gain)?": "takes two photos of an identity; for AUC, two identities as well",
    r"far|tar": "not known",
}


def missing_reason(path: str) -> str | None:
    """Return why the metric at `path` is None, or None if no reason is known for that name."""
    return next((reason for end, reason in REASONS.items() if re.search(rf"(^|\.)({end})$", path)), None)


def missing_metrics(suites: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of every None below the suites, and its reason. Suites that are None as a whole are left out."""
    for name, value in suites.items():
        path = f"{parent}.{name}" if parent else name
        if isinstance(value, Mapping):
            yield from missing_metrics(value, path)
        elif isinstance(value, list):
            for index, row in enumerate(value):
                if isinstance(row, Mapping):
                    yield from missing_metrics(row, f"{path}.{index}")
        elif value is None and parent:
            yield path, missing_reason(path) or "does not exist for these photos"
