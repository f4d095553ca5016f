"""The base class of the classes that contain a table's SQL statements."""

from familiar.gallery.store.connection import Connection


class Table:
    """SQL statements on one table, or on tables that belong together.

    Every method runs within the transaction of `Store.read` or `Store.write`.
    """

    def __init__(self, connection: Connection) -> None:
        """Use a connection to the gallery's database."""
        self._connection = connection
