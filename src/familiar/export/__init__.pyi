from .gate import Gate
from .run_export import export_bundle
from .train_and_export import train

__all__ = [
    "Gate",
    "export_bundle",
    "train",
]
