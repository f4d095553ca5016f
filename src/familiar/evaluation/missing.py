"""Explain why a figure has no value where the rest of its suite could be computed."""

import re

REASONS = {  # by the end of the figure's path
    **{rf"tar_at_far\.1e-{n}": f"takes {10 ** (n + 1):,} pairs of different identities" for n in (2, 3, 4)},
    **{rf"dir_at_far\.1e-{n}": f"takes {10 ** (n + 1):,} unknown photos" for n in (1, 2, 3)},
    r"recall_at_\d+|ndcg_at_10|rank_\d+": "there are no more candidates than this rank, or no identity has two photos",
    r"probability(\.calibration_error)?|on_validation\.(far|tar)": "the bundle was never calibrated, or the model has "
    "several bundles",
    r"pairwise|bcubed": "no identity has two photos",
    r"dunn\.\w+": "every identity is one point",
    r"d_prime": "the similarities do not vary",
    r"precision": "no two photos were put into one group",
    r"(recall_at_1|auc)(_drop|_gain)?": "takes two photos of an identity; for AUC, two identities as well",
    r"far|tar": "not known",
}


def missing_reason(path: str) -> str:
    """Return why the figure at `path` has no value."""
    matching = (reason for end, reason in REASONS.items() if re.search(rf"(^|\.)({end})$", path))
    return next(matching, "does not exist for these photos")
