from .duplicates import find_duplicates
from .folders import DataSpec, IdentityTable, open_photo, scan_folders
from .inspection import Inspection, inspect_table
from .pairs import read_lfw_folds, read_lfw_pairs, read_lfw_people
from .shards.scanning import names_shards, scan_shards
from .split import Split, split_by_identity
from .synthetic import SyntheticPhoto, SyntheticSource

__all__ = [
    "DataSpec",
    "IdentityTable",
    "Inspection",
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
    "scan_folders",
    "scan_shards",
    "split_by_identity",
]
