"""The SQL statements of a gallery, in one class per table. Callers reach them through `Repository`."""
