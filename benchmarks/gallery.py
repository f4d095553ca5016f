"""What a photo collection costs and how well it is put in order: gallery.py WORK [options of the work].

Each work is a module of `collection`, with a `main` that takes its options; `gallery.py WORK --help` tells them.
"""

import argparse
from importlib import import_module

WORKS = ("search", "grouping", "enrolling", "answers", "pictures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("options", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    import_module(f"collection.{given.work}").main(given.options)


if __name__ == "__main__":
    main()
