from .album import AlbumWhitening, cluster_album, estimate_threshold
from .brute_force import nearest_neighbors, rerank, search
from .centering import Centering
from .clustering import cluster, fit_threshold
from .constraints import Constraints
from .domains import cluster_by_domain
from .hnsw import HnswIndex, Stamp
from .knn_graph import KnnGraph, build_knn_graph
from .large_album import LargeAlbum
from .whitening import domain_shift, whiten_to_domain

__all__ = [
    "AlbumWhitening",
    "Centering",
    "Constraints",
    "HnswIndex",
    "KnnGraph",
    "LargeAlbum",
    "Stamp",
    "build_knn_graph",
    "cluster",
    "cluster_album",
    "cluster_by_domain",
    "domain_shift",
    "estimate_threshold",
    "fit_threshold",
    "nearest_neighbors",
    "rerank",
    "search",
    "whiten_to_domain",
]
