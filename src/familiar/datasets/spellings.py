"""One spelling for the names of a source's identities, and a warning where they had several."""

import logging

from familiar.core.names import unify_spelling

log = logging.getLogger(__name__)

_MAX_SHOWN = 10


class Spellings:
    """The spellings of the identities of one source that were read so far."""

    def __init__(self) -> None:
        """Start without any."""
        self._first: dict[str, str] = {}  # of each name: the spelling that came first
        self._all: dict[str, dict[str, None]] = {}  # of each name that has several

    def unify(self, spelling: str) -> str:
        """Return the name of an identity, which all its spellings have in common."""
        name = unify_identity(spelling)
        first = self._first.setdefault(name, spelling)
        if spelling != first:
            self._all.setdefault(name, {first: None})[spelling] = None
        return name

    def warn(self, location: object) -> None:
        """Warn of the identities that have several spellings; each is read as one."""
        if not self._all:
            return
        shown = "; ".join(" and ".join(map(ascii, spellings)) for spellings in list(self._all.values())[:_MAX_SHOWN])
        log.warning(
            "%s: names that look the same are read as one identity; rename one of them if they are two: %s%s",
            location,
            shown,
            "; ..." if len(self._all) > _MAX_SHOWN else "",
        )


def unify_identity(spelling: str) -> str:
    """Return the name of an identity of a data set in its one spelling; as it is, if nothing of it is visible."""
    return unify_spelling(spelling) or spelling
