"""Why a single figure is None, where the rest of its suite could be computed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

WHY = {  # by the end of the figure's path
    **{rf"tar_at_far\.1e-{n}": f"takes {10 ** (n + 1):,} pairs of strangers" for n in (2, 3, 4)},
    **{rf"dir_at_far\.1e-{n}": f"takes {10 ** (n + 1):,} unknown photos" for n in (1, 2, 3)},
    r"recall_at_\d+|ndcg_at_10|rank_\d+": "as many are looked at as there are, or nobody has two photos",
    r"probability|promised\.(far|tar)": "the bundle was never calibrated",
    r"pairwise|bcubed": "no identity has two photos",
    r"dunn\.\w+": "every identity is one point",
    r"d_prime": "no similarity varies",
    r"precision": "no two photos were put into one group",
    r"(recall_at_1|auc)(_drop|_gain)?": "takes two photos of an identity; for AUC, two identities as well",
    r"far|tar": "not known",
}


def missing_reason(path: str) -> str | None:
    """The reason of a figure that is None, by its path in the results; None where no figure of that name can be."""
    return next((reason for end, reason in WHY.items() if re.search(rf"(^|\.)({end})$", path)), None)


def missing_metrics(parts: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, str]]:
    """The path of every None below, and its reason; suites that are None as a whole have their own."""
    for name, value in parts.items():
        path = f"{at}.{name}" if at else name
        if isinstance(value, Mapping):
            yield from missing_metrics(value, path)
        elif isinstance(value, list):
            for place, one in enumerate(value):
                if isinstance(one, Mapping):
                    yield from missing_metrics(one, f"{path}.{place}")
        elif value is None and at:
            yield path, missing_reason(path) or "does not exist for these photos"
