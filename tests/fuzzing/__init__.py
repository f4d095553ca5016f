"""Coverage-guided fuzzing of every reader of files and requests that may come from strangers.

    cd tests; python -m fuzzing --seconds 300 --output findings            # all readers
    cd tests; python -m fuzzing --seconds 60 --output findings photo-png   # some

It needs atheris. `test_readers.py` runs the seeds and all former findings without.
"""
