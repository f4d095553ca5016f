"""Value types, unit-vector mathematics, errors and file helpers that all other packages share."""
