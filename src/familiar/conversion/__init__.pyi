from .calibrating import calibrate_bundle
from .importing import import_network
from .presets import PRESETS, Preset

__all__ = [
    "PRESETS",
    "Preset",
    "calibrate_bundle",
    "import_network",
]
