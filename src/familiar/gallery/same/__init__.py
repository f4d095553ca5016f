"""Whether two faces show the same individual: what is stored about that, learned from decisions, and undone."""
