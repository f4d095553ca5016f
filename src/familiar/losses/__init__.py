"""(embeddings, labels) to scalar (torch). Knows nothing of photos or networks."""

from familiar.losses.softmax import ArcFace, arcface_logits

__all__ = ["ArcFace", "arcface_logits"]
