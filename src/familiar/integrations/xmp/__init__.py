"""Names of faces in the metadata of photos: XMP sidecars and packets, and `.picasa.ini`."""
