"""The reports of lost and found pets."""

from familiar.gallery.store.table import Table

REPORT_FIELDS = ("species", "location", "reported_on", "contact", "note")
"""The texts of a report, in the order of the table's columns; "" if not known."""
ReportRow = tuple[str, str, str, str, str, str]
"""Status and `REPORT_FIELDS`."""
_COLUMNS = f"status, {', '.join(REPORT_FIELDS)}"


class Reports(Table):
    """SQL statements on the table `reports`."""

    def all(self) -> dict[int, ReportRow]:
        """Return the report of each identity that has one."""
        rows = self._connection.rows(f"SELECT identity_id, {_COLUMNS} FROM reports")
        return {row[0]: row[1:] for row in rows}

    def any(self) -> bool:
        """Tell whether there is a report."""
        return self._connection.first("SELECT 1 FROM reports LIMIT 1") is not None

    def report(self, identity: int) -> ReportRow | None:
        """Return the report of an identity, if it has one."""
        return self._connection.first(f"SELECT {_COLUMNS} FROM reports WHERE identity_id = ?", (identity,))

    def store(self, identity: int, report: ReportRow) -> None:
        """Add or replace the report of an identity. One that is the same already is not written."""
        columns = ("status", *REPORT_FIELDS)
        values = ", ".join(f"{column} = excluded.{column}" for column in columns)
        changed = " OR ".join(f"{column} <> excluded.{column}" for column in columns)
        self._connection.run(
            f"INSERT INTO reports (identity_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT (identity_id) DO UPDATE SET {values} WHERE {changed}",
            (identity, *report),
        )

    def delete(self, identity: int) -> None:
        """Delete the report of an identity."""
        self._connection.run("DELETE FROM reports WHERE identity_id = ?", (identity,))
