"""The sections of the report: the values that each section's template shows."""
