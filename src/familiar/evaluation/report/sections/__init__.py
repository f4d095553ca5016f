"""The sections of the report, one per file: each renders the markup of its part of the results."""
