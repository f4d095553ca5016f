"""Coverage-guided fuzzing of every reader of files and requests that may come from strangers.

    cd tests; python -m fuzzing --seconds 300 --output findings            # all readers
    cd tests; python -m fuzzing --seconds 60 --output findings photo-png   # some

It needs atheris. The seeds of each reader, and all inputs that once were findings, are run by `test_readers.py` without.
"""
