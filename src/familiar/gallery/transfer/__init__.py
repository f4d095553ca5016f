"""Import, export, backup, check and repair, and migration to another model."""
