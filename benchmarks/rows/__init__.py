"""The five works put to the question: a file for each row of `works.py`, and what they share."""
