"""Notices of the operating system about changed files, by the library watchfiles.

They only say when to look: some get lost, so the watch also searches its folders regularly. The library collects them
while the watch does something else.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_DEBOUNCE_MS = 300  # notices that come within it are taken together
_WAIT_MS = 100  # between two looks at the clock


class ChangeNotices:
    """Tells that files in some folders have changed.

    Args:
        folders: absolute.
        stopping: set when nobody waits any more.
    """

    def __init__(self, folders: Sequence[str], stopping: threading.Event) -> None:
        self._folders, self._stopping = folders, stopping
        self._notices: Iterator[set[tuple[Any, str]]] | None = None

    def restart(self) -> None:
        """Begin anew, because a folder was mounted or replaced."""
        self._notices = None

    def wait(self, seconds: float) -> bool:
        """Wait until files change or the watch is to stop, at most for some seconds.

        Returns:
            Whether files have, or may have, changed since the last call.

        Raises:
            Exception: the system gives no notices, or watchfiles is not installed.
        """
        from watchfiles import watch

        end = time.monotonic() + seconds
        while not self._stopping.is_set() and time.monotonic() < end:
            folders = [folder for folder in self._folders if Path(folder).is_dir()]
            if self._notices is not None:
                if next(self._notices, ()):
                    return True
            elif folders:
                options: dict[str, Any] = {"debounce": _DEBOUNCE_MS, "rust_timeout": _WAIT_MS, "yield_on_timeout": True}
                options |= {"watch_filter": None, "stop_event": self._stopping, "ignore_permission_denied": True}
                self._notices = watch(*folders, **options)
                next(self._notices, ())  # from now on the system collects them
                return True  # of what changed before there are none
            else:
                self._stopping.wait(_WAIT_MS / 1000)
        return False
