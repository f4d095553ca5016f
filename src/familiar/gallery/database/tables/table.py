"""The base class of the classes that contain a table's SQL statements."""

import sqlite3


class Table:
    """SQL statements on one table, or on tables that belong together.

    Every method runs within the transaction of `GalleryDatabase.reading` or `GalleryDatabase.writing`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use a connection to the gallery's database."""
        self._connection = connection
