from .bundle import Bundle, BundleMetadata, load_bundle
from .embedder import Embedder
from .photos import EmbedResult, embed_photos
from .verification import VerificationResult, verify, verify_embeddings, verify_faces
from .zoo import model_card, shipped_bundles

__all__ = [
    "Bundle",
    "BundleMetadata",
    "EmbedResult",
    "Embedder",
    "VerificationResult",
    "embed_photos",
    "load_bundle",
    "model_card",
    "shipped_bundles",
    "verify",
    "verify_embeddings",
    "verify_faces",
]
