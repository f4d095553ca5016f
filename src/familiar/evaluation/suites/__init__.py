"""Suites of metrics, one per file: from embedded photos to one part of `eval_results.json`."""
