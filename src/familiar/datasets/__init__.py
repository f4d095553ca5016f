"""Labeled photos as tables: folders, splits, pairs files, drawn pets."""
