"""`python -m familiar`."""

from familiar.app.cli import main

if __name__ == "__main__":
    main()
