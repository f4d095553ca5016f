"""SQLite storage of a gallery: connection, schema, and all SQL, a module for each table or two."""
