"""Whether two faces show the same individual: what the gallery has stored and learned about that."""
