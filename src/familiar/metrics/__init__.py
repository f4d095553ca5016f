"""Arrays to numbers: pure functions that know neither photos nor networks."""
