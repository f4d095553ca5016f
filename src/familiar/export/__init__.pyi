from .gate import Gate
from .router_export import export_router
from .run_export import export_bundle
from .train_and_export import train

__all__ = [
    "Gate",
    "export_bundle",
    "export_router",
    "train",
]
