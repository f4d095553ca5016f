"""Which addresses commands connect to, their native libraries included: what strace sees in a network of their own.

As a program: `python -m support.connections run TRACE FILE` brings up the loopback interface of a new network and runs
the commands of a file under strace, `python -m support.connections commands FILE` only runs them.
"""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.started_commands import first_event, served_page

TESTS = Path(__file__).parents[1]
TRACED_CALLS = "connect,sendto,sendmsg,sendmmsg"
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41  # of an interface: SIOCSIFFLAGS; IFF_UP | IFF_RUNNING


@dataclass(frozen=True)
class Trace:
    """What traced commands did.

    Attributes:
        code: their exit status.
        output: of all of them.
        addresses: of other machines, to which they tried to connect or send; with ":53" also of a name server here.
    """

    code: int
    output: str
    addresses: frozenset[str]


def reason_to_skip() -> str | None:
    """Return why nothing can be traced on this machine, or None."""
    if sys.platform != "linux" or not shutil.which("strace") or not shutil.which("unshare"):
        return "needs Linux, strace and unshare"
    tried = subprocess.run(["unshare", "-rn", "strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "this machine allows no new network, or no tracing"


def trace(commands: Sequence[str], folder: Path, user_folder: Path) -> Trace:
    """Run commands of `familiar` in a network with nothing but loopback.

    Args:
        commands: without "familiar".
        folder: the current folder.
        user_folder: HOME. Nothing else of this process's environment is passed on, as CI, which libraries heed.
    """
    (folder / "commands.txt").write_text("\n".join(commands))
    environment = {
        "HOME": str(user_folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)]),
        "OMP_NUM_THREADS": "1",
    }
    program = [sys.executable, "-m", "support.connections"]
    done = subprocess.run(
        ["unshare", "-rn", *program, "run", "trace.txt", "commands.txt"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Trace(done.returncode, done.stdout, frozenset(outside_addresses((folder / "trace.txt").read_text())))


def outside_addresses(trace: str) -> list[str]:
    """Return address:port of each call in strace's output that goes to another machine or to a name server."""
    pattern = r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"([^"]+)"'
    calls = [(address, port) for port, address in re.findall(pattern, trace)]
    named = [f"{path} (names)" for path in re.findall(r'sun_path="([^"]*resolve[^"]*)"', trace)]
    is_here = re.compile(r"127\.|::1$|::ffff:127\.|0\.0\.0\.0$|::$")
    return [f"{address}:{port}" for address, port in calls if port == "53" or not is_here.match(address)] + named


def run_commands(commands: Sequence[str]) -> None:
    """Run commands of `familiar` one after the other. Servers and watches are stopped after their first answer."""
    import click
    from click.testing import CliRunner

    from familiar.cli.main import familiar

    for command in commands:
        click.echo(f"familiar {command}")
        arguments = shlex.split(command)
        if arguments[0] == "serve":
            served_page(arguments)
        elif arguments[0] == "watch":
            first_event(arguments)
        else:
            result = CliRunner().invoke(familiar, arguments)
            if result.exit_code:
                sys.exit(f"{result.output}\n{result.exception!r}")


def _bring_up_loopback() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, b"lo".ljust(16, b"\0") + UP_AND_RUNNING.to_bytes(16, "little"))


def main() -> None:
    match sys.argv[1:]:
        case ["run", trace_file, commands_file]:
            _bring_up_loopback()
            command = [sys.executable, "-m", "support.connections", "commands", commands_file]
            options = ["-f", "-qq", "--seccomp-bpf", "-e", "signal=none", "-e", f"trace={TRACED_CALLS}"]
            os.execvp("strace", ["strace", *options, "-o", trace_file, *command])
        case ["commands", commands_file]:
            run_commands(Path(commands_file).read_text().splitlines())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
