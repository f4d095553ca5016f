"""Benchmark the gallery's speed, memory and clustering quality: gallery.py NAME [options].

Each benchmark is a module of `collection` with a `main`; `gallery.py NAME --help` lists its options.
"""

import argparse
from importlib import import_module

BENCHMARKS = (
    "search",
    "milvus",
    "clustering",
    "large_clustering",
    "enrolling",
    "answers",
    "learning",
    "species",
    "pictures",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", choices=BENCHMARKS)
    parser.add_argument("options", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    import_module(f"collection.{arguments.name}").main(arguments.options)


if __name__ == "__main__":
    main()
