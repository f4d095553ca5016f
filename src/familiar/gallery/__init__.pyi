from .clustering.cluster import ClusterResult
from .clustering.review_queue import Question
from .editing.corrections import CorrectionResult
from .editing.forget import ForgetResult
from .editing.undo_log import Decision
from .enrollment.enroll import EnrollResult
from .gallery import Gallery
from .integrity.backup import BackupResult, RestoreResult
from .search.filters import Filter
from .search.listing import IdentitySummary
from .search.search import Hit, Match
from .search.statistics import GalleryStatistics
from .transfer.import_export import ExportResult, ImportResult
from .transfer.migrate import MigrationResult
from .transfer.xmp_export import XmpExportResult

__all__ = [
    "BackupResult",
    "ClusterResult",
    "CorrectionResult",
    "Decision",
    "EnrollResult",
    "ExportResult",
    "Filter",
    "ForgetResult",
    "Gallery",
    "GalleryStatistics",
    "Hit",
    "IdentitySummary",
    "ImportResult",
    "Match",
    "MigrationResult",
    "Question",
    "RestoreResult",
    "XmpExportResult",
]
