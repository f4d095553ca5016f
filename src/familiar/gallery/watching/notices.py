"""Notices of the operating system about changed files, by the library watchfiles, if it is installed.

They only say where to look, and when: some get lost, so the watch also searches its folders regularly.
"""

import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

_DEBOUNCE_MS = 300  # notices that come within it are taken together
_RETRY_SECONDS = 10.0


def can_notice() -> bool:
    """Tell whether the library is installed."""
    return find_spec("watchfiles") is not None


class ChangeNotices:
    """Collects the paths of changed files in a thread.

    Args:
        folders: absolute.
        on_change: called in the thread whenever `take` returns something.
        on_failure: called in the thread with a message, once, if the system gives no notices.
    """

    def __init__(
        self, folders: Sequence[str], on_change: Callable[[], None], on_failure: Callable[[str], None]
    ) -> None:
        self._folders, self._on_change, self._on_failure = folders, on_change, on_failure
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._misses_some = False
        self._has_failed = False
        self._stop = threading.Event()
        self._restart = threading.Event()
        self._thread = threading.Thread(target=self._run, name="change-notices", daemon=True)

    @property
    def works(self) -> bool:
        """Whether the system gives notices."""
        return not self._has_failed

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._restart.set()
        self._thread.join(5)

    def restart(self) -> None:
        """Begin anew, because a folder was mounted or replaced."""
        self._restart.set()

    def take(self) -> tuple[set[str], bool]:
        """Return the paths that changed since the last call, and whether notices may have been lost."""
        with self._lock:
            paths, self._paths = self._paths, set()
            misses_some, self._misses_some = self._misses_some, False
        return paths, misses_some

    def _run(self) -> None:
        while not self._stop.is_set():
            self._restart.clear()
            try:
                self._collect()
            except Exception as error:
                self._fail(error)
            if not self._restart.wait(_RETRY_SECONDS if self._has_failed else 0.1):
                self._add(set(), misses_some=True)

    def _collect(self) -> None:
        from watchfiles import watch

        folders = [folder for folder in self._folders if Path(folder).is_dir()]
        if not folders:
            self._restart.wait(_RETRY_SECONDS)
            return
        notices = watch(
            *folders,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            stop_event=self._restart,
            rust_timeout=1000,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        is_first = True
        for changes in notices:
            self._has_failed = False
            if changes or is_first:  # of what changed before the first answer there are no notices
                self._add({path for _, path in changes}, misses_some=is_first)
            is_first = False

    def _add(self, paths: set[str], *, misses_some: bool) -> None:
        with self._lock:
            self._paths |= paths
            self._misses_some |= misses_some
        self._on_change()

    def _fail(self, error: Exception) -> None:
        if isinstance(error, UnicodeError) or "decode path" in str(error):
            return  # the name of a file is not UTF-8: begin anew, after a full scan
        if not self._has_failed:
            self._has_failed = True
            self._on_failure(str(error))
