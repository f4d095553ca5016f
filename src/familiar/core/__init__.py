"""Value types, unit-vector mathematics and errors: what every floor above shares."""
