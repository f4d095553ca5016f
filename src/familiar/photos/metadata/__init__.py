"""Names of faces in the metadata of photos: XMP packets in JPEGs and sidecars, and Picasa's files."""
