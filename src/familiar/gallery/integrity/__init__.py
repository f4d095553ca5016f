"""Check a gallery and recover what can be read of a damaged one."""
