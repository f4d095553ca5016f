"""What `familiar serve` costs and what it stands: serve.py WORK [options of the work].

Each work is a module of `serving`, with a `main` that takes its options; `serve.py WORK --help` tells them.
"""

import argparse
from importlib import import_module

WORKS = ("embed", "search", "page", "load", "kill", "contract", "pictures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("options", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    import_module(f"serving.{given.work}").main(given.options)


if __name__ == "__main__":
    main()
