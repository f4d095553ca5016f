from .brute_force import nearest_neighbors, rerank, search
from .centering import Centering
from .clustering import cluster, clusters_at, fit_threshold
from .comparison import Comparison, cluster_album, estimate_threshold
from .constraints import Constraints
from .hnsw import HnswIndex, Stamp
from .large_album import LargeAlbum
from .whitening import Whitening

__all__ = [
    "Centering",
    "Comparison",
    "Constraints",
    "HnswIndex",
    "LargeAlbum",
    "Stamp",
    "Whitening",
    "cluster",
    "cluster_album",
    "clusters_at",
    "estimate_threshold",
    "fit_threshold",
    "nearest_neighbors",
    "rerank",
    "search",
]
