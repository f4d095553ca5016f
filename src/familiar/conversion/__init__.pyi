from .importing import import_network
from .presets import PRESETS, Preset

__all__ = [
    "PRESETS",
    "Preset",
    "import_network",
]
