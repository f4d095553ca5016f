"""Run a reader on an input and note what no reader may do: fail as it should not, take long, leave its folder."""

import os
import sys
import sysconfig
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import familiar
from familiar.core.errors import FamiliarError
from fuzzing.reader import Read

MAX_SECONDS = 5.0  # of CPU
PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn"})
OUTSIDE_EVENTS = frozenset(
    {"socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request", "pickle.find_class", "ctypes.dlopen"}
)
# Modules are imported when they are first needed.
READABLE = tuple(
    {str(Path(folder).resolve()) for folder in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())}
    | {str(Path(familiar.__file__).parents[1].resolve()), str(Path(__file__).parents[2].resolve()), "/proc", "/sys"}
    | {"/dev/null", "/dev/urandom", "/usr/share", "/usr/lib", "/etc/mime.types", "/etc/localtime"}
)


class Forbidden(BaseException):
    """A reader did what none may do. No `except Exception` catches this."""


@dataclass(frozen=True)
class Finding:
    """What a reader did wrong.

    Attributes:
        cause: the exception's type or another one, and where it came from; the same for inputs with the same fault.
        detail: for people.
    """

    cause: str
    detail: str


class Sandbox:
    """Watches what Python code opens and starts while a reader runs. It cannot be removed, only be told to rest."""

    def __init__(self, folder: Path, *, starts_processes: bool = False) -> None:
        self._folder = str(folder.resolve())
        self._forbidden = OUTSIDE_EVENTS if starts_processes else OUTSIDE_EVENTS | PROCESS_EVENTS
        self._active = False
        sys.addaudithook(self._audit)

    def run(self, read: Read, data: bytes) -> Finding | None:
        """Read an input; return what was wrong with that, or None."""
        started = time.process_time()
        try:
            self._active = True
            read(data)
        except FamiliarError:
            pass
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._active = False
            return Finding(_cause(error), "".join(traceback.format_exception(error, limit=-12))[-6000:])
        finally:
            self._active = False
        seconds = time.process_time() - started
        if seconds > MAX_SECONDS:
            return Finding("slow", f"{seconds:.1f} s of CPU")
        return None

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event in self._forbidden:
            self._refuse(f"{event} {arguments!r:.200}")
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int) or path is None:
                return
            resolved = os.path.realpath(os.fsdecode(path))
            writes = flags & (os.O_WRONLY | os.O_RDWR) if isinstance(flags, int) else "w" in str(mode)
            allowed = (self._folder,) if writes else (self._folder, *READABLE)
            if not any(resolved == root or resolved.startswith(root + os.sep) for root in allowed):
                self._refuse(f"open {resolved} {mode}")

    def _refuse(self, what: str) -> None:
        self._active = False
        raise Forbidden(what)


def _cause(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    familiar_frames = [frame for frame in frames if f"{os.sep}familiar{os.sep}" in frame.filename]
    function = "the reader"
    if familiar_frames:
        last = familiar_frames[-1]
        function = f"{last.filename.rpartition(f'{os.sep}familiar{os.sep}')[2]}:{last.name}"
    detail = f" {error}" if isinstance(error, Forbidden) else ""
    return f"{type(error).__name__} in {function}{detail}"
