"""Benchmarks of `familiar serve`: serve.py BENCHMARK [options].

Each benchmark is a module of `serving` with a `main`; `serve.py BENCHMARK --help` lists its options.
"""

import argparse
from importlib import import_module

BENCHMARKS = ("embed", "search", "page", "load", "kill", "contract", "pictures", "first_album", "slow", "disconnects")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("options", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    import_module(f"serving.{arguments.benchmark}").main(arguments.options)


if __name__ == "__main__":
    main()
