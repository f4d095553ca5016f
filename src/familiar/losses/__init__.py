"""(embeddings, labels) to scalar (torch). Knows nothing of photos or networks."""
