"""Nearest vectors and the groups they form: pure functions over unit rows."""
