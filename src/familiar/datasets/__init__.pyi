from .duplicates import find_duplicates
from .folders import DataSpec, read_table, scan_folders
from .identity_table import IdentityTable
from .inspection import Inspection, inspect_table
from .pairs import read_lfw_folds, read_lfw_pairs, read_lfw_people
from .photo_references import BoxedPhoto, open_photo
from .shards.scanning import ShardPhoto, names_shards, scan_shards
from .split import Split, split_by_identity, split_photos
from .synthetic import SyntheticPhoto, SyntheticSource

__all__ = [
    "BoxedPhoto",
    "DataSpec",
    "IdentityTable",
    "Inspection",
    "ShardPhoto",
    "Split",
    "SyntheticPhoto",
    "SyntheticSource",
    "find_duplicates",
    "inspect_table",
    "names_shards",
    "open_photo",
    "read_lfw_folds",
    "read_lfw_pairs",
    "read_lfw_people",
    "read_table",
    "scan_folders",
    "scan_shards",
    "split_by_identity",
    "split_photos",
]
