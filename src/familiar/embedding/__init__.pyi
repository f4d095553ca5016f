from .bundle import Bundle, BundleMetadata, load_bundle
from .embedder import Embedder
from .model import EmbedResult, embed_photos
from .species.router import RoutedEmbedder
from .species.router_file import load_router
from .verification import VerificationResult, verify, verify_embeddings
from .zoo import model_card, shipped_bundles

__all__ = [
    "Bundle",
    "BundleMetadata",
    "EmbedResult",
    "Embedder",
    "RoutedEmbedder",
    "VerificationResult",
    "embed_photos",
    "load_bundle",
    "load_router",
    "model_card",
    "shipped_bundles",
    "verify",
    "verify_embeddings",
]
