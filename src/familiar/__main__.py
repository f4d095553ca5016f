"""`python -m familiar`."""

from familiar.cli.main import main

if __name__ == "__main__":
    main()
