from . import (
    datasets,
    losses,
    metrics,
    models,
    recipes,
)
from .conversion.importing import (
    import_network,
)
from .core.calibration import (
    Threshold,
)
from .core.errors import (
    BadDataset,
    CannotWrite,
    FamiliarError,
    IndexUnavailable,
    SpaceMismatch,
    UnreadablePhoto,
)
from .core.types import (
    Box,
    Crop,
    Face,
    Photo,
)
from .detection.alignment import (
    align,
)
from .detection.detector import (
    Detector,
)
from .detection.detectors import (
    build_detector,
)
from .embedding.bundle import (
    Bundle,
    load_bundle,
)
from .embedding.embedder import (
    Embedder,
)
from .embedding.photos import (
    detector_for,
    embed_photos,
)
from .embedding.verification import (
    verify,
)
from .evaluation.run_evaluation import (
    evaluate,
)
from .export.run_export import (
    export_bundle,
)
from .export.train_and_export import (
    train,
)
from .gallery.gallery import (
    Gallery,
)
from .gallery.store.external_index import (
    IndexRow,
    VectorIndex,
)
from .neighbors.clustering import (
    cluster,
)
from .neighbors.comparison import (
    Comparison,
)
from .neighbors.large_album import (
    LargeAlbum,
)
from .photos.decoding import load_photo
from .photos.listing import find_photos

__all__ = [
    "BadDataset",
    "Box",
    "Bundle",
    "CannotWrite",
    "Comparison",
    "Crop",
    "Detector",
    "Embedder",
    "Face",
    "FamiliarError",
    "Gallery",
    "IndexRow",
    "IndexUnavailable",
    "LargeAlbum",
    "Photo",
    "SpaceMismatch",
    "Threshold",
    "UnreadablePhoto",
    "VectorIndex",
    "align",
    "build_detector",
    "cluster",
    "datasets",
    "detector_for",
    "embed_photos",
    "evaluate",
    "export_bundle",
    "find_photos",
    "import_network",
    "load_bundle",
    "load_photo",
    "losses",
    "metrics",
    "models",
    "recipes",
    "train",
    "verify",
]

__version__: str
