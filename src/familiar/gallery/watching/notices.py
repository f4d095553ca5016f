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

    Attributes:
        works: whether the system gives notices.
    """

    def __init__(
        self, folders: Sequence[str], on_change: Callable[[], None], on_failure: Callable[[str], None]
    ) -> None:
        self._folders, self._on_change, self._on_failure = folders, on_change, on_failure
        self.works = True
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._misses_some = False
        self._stop = threading.Event()
        self._restart = threading.Event()
        self._thread = threading.Thread(target=self._run, name="change-notices", daemon=True)

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
                is_name = isinstance(error, UnicodeError) or "decode path" in str(error)
                if self.works and not is_name:  # that is not UTF-8: begin anew, after a full scan
                    self.works = False
                    self._on_failure(str(error))
            if not self._restart.wait(0.1 if self.works else _RETRY_SECONDS):
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
        for index, changes in enumerate(notices):
            self.works = True
            if changes or not index:  # of what changed before the first answer there are no notices
                self._add({path for _, path in changes}, misses_some=not index)

    def _add(self, paths: set[str], *, misses_some: bool) -> None:
        with self._lock:
            self._paths |= paths
            self._misses_some |= misses_some
        self._on_change()
