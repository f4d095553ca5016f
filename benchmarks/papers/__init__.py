"""The five works put to the question: a file for each row of `reproduce.py`, and what they share."""
