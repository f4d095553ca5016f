"""Tables of labeled photos: folders, splits, pairs files, drawn pets."""
