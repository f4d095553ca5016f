from .catalog import NetworkSpec, network_spec
from .network import EmbeddingNetwork
from .weights import load_network_file, load_weights_file

__all__ = [
    "EmbeddingNetwork",
    "NetworkSpec",
    "load_network_file",
    "load_weights_file",
    "network_spec",
]
