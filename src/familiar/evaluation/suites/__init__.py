"""One suite a file: from embedded photos to one part of `eval_results.json`."""
