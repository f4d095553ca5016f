"""Checks of the arrays that metrics are called with."""

import numpy as np

_INTEGERS, _FLOATS, _FLAGS = "iu", "f", "b"
_NAMES = {_INTEGERS: "integers", _FLOATS: "floats", _FLAGS: "bool"}


def check_rows(embeddings: np.ndarray, labels: np.ndarray, *, finite: bool = True) -> None:
    """Check embeddings and the identity of each.

    Args:
        embeddings: floats "n d", finite.
        labels: integers "n".
        finite: False: do not look for NaN and infinite values, as the caller does.

    Raises:
        ValueError: a shape or a dtype is another, or a row is not finite.
    """
    check_columns(integers={"labels": labels})
    _check_array("embeddings", embeddings, 2, _FLOATS)
    if len(embeddings) != len(labels):
        raise ValueError(f"{len(labels)} labels for {len(embeddings)} embeddings; pass one label per embedding")
    if finite:
        check_finite_rows(embeddings)


def check_finite_rows(embeddings: np.ndarray) -> None:
    """Check floats "n d"; raise ValueError for another shape or dtype, and for NaN and infinite values."""
    _check_array("embeddings", embeddings, 2, _FLOATS)
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if bad.size:
        raise ValueError(f"{bad.size} of {len(embeddings)} rows are not finite; the first is row {bad[0]}")


def check_columns(
    *,
    integers: dict[str, np.ndarray] | None = None,
    floats: dict[str, np.ndarray] | None = None,
    flags: dict[str, np.ndarray] | None = None,
) -> None:
    """Check arrays of one axis that belong together, by their names.

    Raises:
        ValueError: a shape or a dtype is another, a float is not finite, or the lengths differ.
    """
    columns: dict[str, np.ndarray] = {}
    for dtype_codes, arrays in ((_INTEGERS, integers), (_FLOATS, floats), (_FLAGS, flags)):
        for name, values in (arrays or {}).items():
            _check_array(name, values, 1, dtype_codes)
            if dtype_codes == _FLOATS and not np.isfinite(values).all():
                raise ValueError(f"{name}: {int((~np.isfinite(values)).sum()):,} of {len(values):,} are not finite")
            columns[name] = values
    if len({len(values) for values in columns.values()}) > 1:
        lengths = ", ".join(f"{len(values):,} {name}" for name, values in columns.items())
        raise ValueError(f"these must be equally many: {lengths}")


def _check_array(name: str, values: np.ndarray, axes: int, dtype_codes: str) -> None:
    if not isinstance(values, np.ndarray) or values.ndim != axes or values.dtype.kind not in dtype_codes:  # pyright: ignore[reportUnnecessaryIsInstance]
        described = f"{values.dtype} {values.shape}" if hasattr(values, "dtype") else type(values).__name__
        raise ValueError(f"{name} must be an array of {_NAMES[dtype_codes]} with {axes} axes, got {described}")
