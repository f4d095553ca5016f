"""Fit a network by a recipe: loop, schedules, checkpoints (torch)."""
