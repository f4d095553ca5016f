"""Rename the keys of results of format version 2 to those of version 3; the values are the same."""

from collections.abc import Mapping
from typing import Any

# Path in version 2 ("*": any key or list index), and the last key's name in version 3. The paths of a suite also hold
# for its metrics within a prefix (suite `harmonic`) and within a slice (suite `slices`).
RENAMED_KEYS = {
    "absent": "missing",
    "data.identities_validated_on": "identities_seen_in_validation",
    "interval.over": "resampled",
    "leaks.compared.judged": "evaluated",
    "leaks.compared.seen": "seen_in_training",
    "verification.pairs_resampled": "interval_pairs",
    "verification.best_accuracy_as_listed": "best_accuracy_unweighted",
    "verification.at_bundle_thresholds.*.promised": "on_validation",
    "verification.probability.promised_error": "validation_error",
    "verification.probability.bins.*.said": "predicted",
    "triplets.which": "sampling",
    "clustering.groups.foreignness": "domain_shift",
    "clustering.groups.threshold_from": "threshold_source",
    "overfitting.photos_each": "photos_per_identity",
    "robustness.degradations": "corruptions",
    "tta.*.ms_a_photo": "ms_per_photo",
    "identification.enrolled_photos_each": "enrolled_photos_per_identity",
    "identification.at_bundle_thresholds.*.misnamed": "misidentified",
    "identification.at_bundle_thresholds.*.refused": "rejected",
    "harmonic.prefixes.*.saved": "saved_fraction",
    "lfw.*.pairs_left_out": "skipped_pairs",
}
_PATTERNS = {tuple(path.split(".")): name for path, name in RENAMED_KEYS.items()}

Path = tuple[str, ...]


def upgrade_from_version_2(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of results of version 2 with the keys, and the paths in `missing`, of version 3."""
    upgraded: dict[str, Any] = _rename_keys(results, ())
    upgraded["format_version"] = 3
    if isinstance(upgraded.get("missing"), Mapping):
        upgraded["missing"] = {_rename_path(path): reason for path, reason in upgraded["missing"].items()}
    return upgraded


def _rename_keys(value: Any, path: Path) -> Any:
    if isinstance(value, Mapping):
        return {_new_key((*path, key)): _rename_keys(child, (*path, key)) for key, child in value.items()}
    if isinstance(value, list):
        return [_rename_keys(child, (*path, str(index))) for index, child in enumerate(value)]
    return value


def _rename_path(dotted: str) -> str:
    keys = tuple(dotted.split("."))
    return ".".join(_new_key(keys[: depth + 1]) for depth in range(len(keys)))


def _new_key(path: Path) -> str:
    candidates = {path, _within_suite(path)}
    return next(
        (name for pattern, name in _PATTERNS.items() if any(_matches(pattern, keys) for keys in candidates)), path[-1]
    )


def _matches(pattern: Path, path: Path) -> bool:
    return len(pattern) == len(path) and all(want in ("*", key) for want, key in zip(pattern, path, strict=True))


def _within_suite(path: Path) -> Path:
    """Cut off the position of a prefix or a slice, whose metrics are laid out as those of the whole."""
    if path[:2] == ("harmonic", "prefixes"):
        return path[3:]
    if path[:2] == ("slices", "columns"):  # a column, then the index of its value
        return path[4:]
    return path
