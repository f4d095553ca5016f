"""Charts and contact sheets of the report."""
