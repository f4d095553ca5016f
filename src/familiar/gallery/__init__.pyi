from .cluster.cluster import ClusterResult
from .edits.corrections import CorrectionResult
from .edits.forget import ForgetResult
from .edits.identity_state import NO_IDENTITY, STATE_PATTERN, IdentityState
from .enroll.enroll import EnrollResult
from .gallery import Gallery
from .review.batches import Batch
from .review.questions import Question, Remaining
from .same.calibration import ClusteringSettings, GalleryFit
from .same.decisions import Decision
from .search.events import GalleryEvent
from .search.filters import Filter
from .search.index_update import IndexUpdate
from .search.listing import SUMMARY_FACES, IdentitySummary
from .search.search import Hit, Match
from .search.statistics import GalleryStatistics
from .store.model_reference import ModelReference
from .store.photos import PhotoRow
from .store.space import Space
from .transfer.backup import BackupResult, RestoreResult
from .transfer.check import CheckResult
from .transfer.import_export import ExportResult, ImportResult
from .transfer.migrate import MigrationResult
from .transfer.repair import RepairResult
from .transfer.xmp_export import XmpExportResult

__all__ = [
    "NO_IDENTITY",
    "STATE_PATTERN",
    "SUMMARY_FACES",
    "BackupResult",
    "Batch",
    "CheckResult",
    "ClusterResult",
    "ClusteringSettings",
    "CorrectionResult",
    "Decision",
    "EnrollResult",
    "ExportResult",
    "Filter",
    "ForgetResult",
    "Gallery",
    "GalleryEvent",
    "GalleryFit",
    "GalleryStatistics",
    "Hit",
    "IdentityState",
    "IdentitySummary",
    "ImportResult",
    "IndexUpdate",
    "Match",
    "MigrationResult",
    "ModelReference",
    "PhotoRow",
    "Question",
    "Remaining",
    "RepairResult",
    "RestoreResult",
    "Space",
    "XmpExportResult",
]
