from .cluster.cluster import ClusterResult
from .edits.corrections import CorrectionResult
from .edits.forget import ForgetResult
from .edits.identity_state import NO_IDENTITY, STATE_PATTERN, IdentityState
from .enroll.enroll import EnrolledBatch, EnrollResult
from .enroll.photo_writing import WrittenPhoto
from .gallery import Gallery
from .review.batches import Batch
from .review.questions import Question, Remaining
from .same.decisions import Decision
from .search.events import GalleryEvent
from .search.filters import Filter
from .search.index_update import IndexUpdate
from .search.listing import SUMMARY_FACES, GalleryFace, IdentitySummary
from .search.search import Hit, Match
from .search.statistics import GalleryStatistics
from .store.external_index import IndexRow, VectorIndex
from .store.model_reference import ModelReference
from .store.notes import Note
from .store.photos import PhotoRow
from .store.space import Space
from .transfer.backup import BackupResult, RestoreResult
from .transfer.check import CheckResult
from .transfer.import_export import SAME_BOX, ExportResult, ImportResult
from .transfer.migrate import MigrationResult
from .transfer.repair import RepairResult

__all__ = [
    "NO_IDENTITY",
    "SAME_BOX",
    "STATE_PATTERN",
    "SUMMARY_FACES",
    "BackupResult",
    "Batch",
    "CheckResult",
    "ClusterResult",
    "CorrectionResult",
    "Decision",
    "EnrollResult",
    "EnrolledBatch",
    "ExportResult",
    "Filter",
    "ForgetResult",
    "Gallery",
    "GalleryEvent",
    "GalleryFace",
    "GalleryStatistics",
    "Hit",
    "IdentityState",
    "IdentitySummary",
    "ImportResult",
    "IndexRow",
    "IndexUpdate",
    "Match",
    "MigrationResult",
    "ModelReference",
    "Note",
    "PhotoRow",
    "Question",
    "Remaining",
    "RepairResult",
    "RestoreResult",
    "Space",
    "VectorIndex",
    "WrittenPhoto",
]
