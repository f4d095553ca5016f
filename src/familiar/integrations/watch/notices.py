"""Notices of the operating system about changed files, by the library watchfiles, if it is installed.

They only say when to look: some get lost, so the watch also searches its folders regularly. The library collects them
while the watch does something else.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_DEBOUNCE_MS = 300  # notices that come within it are taken together
_WAIT_MS = 100  # between two looks at the clock
_RETRY_SECONDS = 10.0


def can_notice() -> bool:
    """Tell whether the library is installed."""
    return find_spec("watchfiles") is not None


class ChangeNotices:
    """Tells that files in some folders have changed.

    Args:
        folders: absolute.
        stopping: set when nobody waits any more.
        on_failure: called with a message, once, if the system gives no notices.

    Attributes:
        works: whether the system gives notices.
    """

    def __init__(self, folders: Sequence[str], stopping: threading.Event, on_failure: Callable[[str], None]) -> None:
        self._folders, self._stopping, self._on_failure = folders, stopping, on_failure
        self.works = True
        self._notices: Iterator[set[tuple[Any, str]]] | None = None
        self._is_changed = False

    def restart(self) -> None:
        """Begin anew, because a folder was mounted or replaced."""
        self._notices = None

    def take(self) -> bool:
        """Return whether files have, or may have, changed since the last call."""
        is_changed, self._is_changed = self._is_changed, False
        return is_changed

    def wait(self, seconds: float) -> None:
        """Wait until files change or the watch is to stop, at most for some seconds."""
        end = time.monotonic() + seconds
        while not (self._is_changed or self._stopping.is_set()) and time.monotonic() < end:
            try:
                self._collect()
            except Exception as error:
                self._notices, self._is_changed = None, True
                is_name = isinstance(error, UnicodeError) or "decode path" in str(error)
                if self.works and not is_name:  # that is not UTF-8: begin anew, after a full scan
                    self.works = False
                    self._on_failure(str(error))
                self._stopping.wait(0.1 if self.works else min(seconds, _RETRY_SECONDS))

    def _collect(self) -> None:
        from watchfiles import watch

        if self._notices is None:
            folders = [folder for folder in self._folders if Path(folder).is_dir()]
            if not folders:
                self._stopping.wait(_WAIT_MS / 1000)
                return
            self._is_changed = True  # of what changed before there are no notices
            options: dict[str, Any] = {"debounce": _DEBOUNCE_MS, "rust_timeout": _WAIT_MS, "yield_on_timeout": True}
            options |= {"watch_filter": None, "stop_event": self._stopping, "ignore_permission_denied": True}
            self._notices = watch(*folders, **options)
        self._is_changed |= bool(next(self._notices, ()))
        self.works = True
