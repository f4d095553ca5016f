"""A page of 500 individuals: what the server takes for it, and a face's picture the second time.

    serve.py page [--faces 20000] [--times 30]

The page is asked for by one client over loopback, all its bytes read. "cold" is the first time after a change.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from serving.search import make_gallery
from serving.server import asked, serving

INDIVIDUALS = 500


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faces", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=30)
    given = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "album"
        identities, _ = make_gallery(folder, given.faces)
        with serving(folder) as server:
            connection = server.connection()

            def milliseconds() -> tuple[float, int]:
                started = time.perf_counter()
                status, body = asked(connection, "GET", f"/individuals?tab=unnamed&limit={INDIVIDUALS}")
                assert status == 200
                shown = body.count(b'id="individual-')
                assert shown == INDIVIDUALS, f"{shown} tiles"
                return 1e3 * (time.perf_counter() - started), len(body)

            cold: list[float] = []
            warm: list[float] = []
            size = 0
            for place in range(given.times):
                name = f"Somebody {place}"
                number = place + INDIVIDUALS + 1
                assert asked(connection, "PATCH", f"/api/v1/identities/{number}", {"name": name})[0] == 200
                cold.append(milliseconds()[0])
                took, size = milliseconds()
                warm.append(took)
    print("| faces | identities | tiles | KB | cold p50 ms | warm p50 ms | warm p95 ms |")
    print("|---|---|---|---|---|---|---|")
    p95 = statistics.quantiles(warm, n=20)[-1]
    print(
        f"| {given.faces:,} | {identities:,} | {INDIVIDUALS} | {size // 1000} | {statistics.median(cold):.0f} | "
        f"{statistics.median(warm):.0f} | {p95:.0f} |"
    )
