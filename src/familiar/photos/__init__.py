"""Decode photos safely: pixels, EXIF and the crop's preprocessing. No knowledge of faces."""
