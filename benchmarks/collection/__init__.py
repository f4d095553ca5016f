"""The works of `gallery.py`, and the vectors they are done on."""
