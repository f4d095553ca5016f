"""Watch folders of photos: enroll what is new, follow what moves, note what is missing, and report who was seen."""
