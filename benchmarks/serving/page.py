"""Response time of a page of 500 individuals.

    serve.py page [--faces 20000] [--times 30]

One client requests the page over loopback and reads all its bytes. "cold" is the first request after a change.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from serving.search import make_gallery
from serving.server import request_json, serving

INDIVIDUALS = 500


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faces", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=30)
    arguments = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "album"
        identities, _ = make_gallery(folder, arguments.faces)
        with serving(folder) as server:
            connection = server.connection()

            def milliseconds() -> tuple[float, int]:
                started = time.perf_counter()
                status, body = request_json(connection, "GET", f"/individuals?tab=unnamed&limit={INDIVIDUALS}")
                assert status == 200
                tiles = body.count(b'id="individual-')
                assert tiles == INDIVIDUALS, f"{tiles} tiles"
                return 1e3 * (time.perf_counter() - started), len(body)

            cold: list[float] = []
            warm: list[float] = []
            size = 0
            for index in range(arguments.times):
                name = f"Name {index}"
                number = index + INDIVIDUALS + 1
                assert request_json(connection, "PATCH", f"/api/v1/identities/{number}", {"name": name})[0] == 200
                cold.append(milliseconds()[0])
                duration, size = milliseconds()
                warm.append(duration)
    print("| faces | identities | tiles | KB | cold p50 ms | warm p50 ms | warm p95 ms |")
    print("|---|---|---|---|---|---|---|")
    p95 = statistics.quantiles(warm, n=20)[-1]
    print(
        f"| {arguments.faces:,} | {identities:,} | {INDIVIDUALS} | {size // 1000} | {statistics.median(cold):.0f} | "
        f"{statistics.median(warm):.0f} | {p95:.0f} |"
    )
