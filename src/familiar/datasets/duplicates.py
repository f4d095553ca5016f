"""Duplicate and near-duplicate photos: identical pixels, or re-encoded, scaled, brightened or cropped by 1 %.

A coarse hash cannot distinguish aligned faces well, so it only selects candidates. The decision is made by the
correlation of the fine structure, without the large shapes that all faces share. On LFW (87 million pairs) 1 pair
in 800 passes the hash, and among photos of different people only true duplicates pass both.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float32, Int8, Int64, UInt8, UInt64

from familiar.core.types import Photo

THUMBNAIL_PX = 32
MAX_HASH_BITS = 8  # of 64; JPEG of quality 10 and a crop by 1 % a side change 6 bits in one photo of a hundred
# The same shot reaches .95 and more, other shots of one scene .85 to .95, different people of LFW at most .83.
MIN_SIMILARITY = 0.9
FEATURELESS_LEVELS = 1.0  # gray levels; the lowest fine structure among 18,000 photos of faces is 4
_BLUR_PX = 3.0  # in the thumbnail: a tenth of the photo
_STEPS_PER_STD = 16  # so that 8 standard deviations fit into eight bits
_BLOCK_ROWS = 1024
_PAIR_BATCH = 4096


@dataclass(frozen=True)
class DuplicateGroup:
    """A group of duplicates; each is similar to the first, and two others may be a little less similar.

    Attributes:
        rows: rows of the table.
        exact: whether all have identical pixels.
        similarity: lowest similarity with the first, 1 if exact.
    """

    rows: tuple[int, ...]
    exact: bool
    similarity: float


def thumbnail(photo: Photo) -> UInt8[np.ndarray, "32 32 3"]:
    """Resize the whole photo to a square RGB thumbnail, ignoring its aspect ratio."""
    return cv2.resize(photo.rgb_u8, (THUMBNAIL_PX, THUMBNAIL_PX), interpolation=cv2.INTER_AREA)


def perceptual_hash(gray: UInt8[np.ndarray, "p p"]) -> int:
    """Compute the 64-bit difference hash: whether each of 8 x 8 fields is darker than its right neighbor.

    The fewer bits differ, the more similar are two photos (dHash, N. Krawetz, "Kind of like that", 2013).
    """
    fields = cv2.resize(gray, (9, 8), interpolation=cv2.INTER_AREA).astype(np.int16)
    return int.from_bytes(np.packbits(fields[:, :-1] < fields[:, 1:]).tobytes())


def fine_structure(gray: UInt8[np.ndarray, "p p"]) -> Int8[np.ndarray, " p*p"]:
    """Compute the high-pass filtered thumbnail, in 1/16 of its standard deviation; all zero for a featureless photo."""
    gray_float = gray.astype(np.float32)
    fine = gray_float - cv2.GaussianBlur(gray_float, (0, 0), _BLUR_PX)
    fine -= fine.mean()
    deviation = float(fine.std())
    if deviation < FEATURELESS_LEVELS:
        return np.zeros(gray.size, np.int8)
    return np.rint(fine * (_STEPS_PER_STD / deviation)).clip(-127, 127).astype(np.int8).ravel()


def find_duplicates(
    digests: Sequence[bytes],
    hashes: UInt64[np.ndarray, " n"],
    structures: Int8[np.ndarray, "n p"],
    *,
    on_rows: Callable[[int], None] = lambda _: None,
) -> tuple[DuplicateGroup, ...]:
    """Group the rows that show the same picture.

    A row is in at most one exact and one near group. A near group has at least two different pictures, and
    contains the exact copies of its pictures too.

    Args:
        digests: equal for equal pixels.
        hashes: of `perceptual_hash`.
        structures: of `fine_structure`.
        on_rows: called with the number of rows compared so far.

    Returns:
        Groups of two and more rows, in the order of their first rows.
    """
    copies = defaultdict[bytes, list[int]](list)
    for row, digest in enumerate(digests):
        copies[digest].append(row)
    rows_by_image = list(copies.values())  # a placeholder image saved a thousand times is compared once
    first_rows = np.array([rows[0] for rows in rows_by_image], np.int64)
    leaders, similarity = assign_leaders(hashes[first_rows], structures[first_rows], on_rows=on_rows)
    members = defaultdict[int, list[int]](list)
    for image, leader in enumerate(leaders.tolist()):
        members[leader].append(image)
    groups = [DuplicateGroup(tuple(rows), True, 1.0) for rows in rows_by_image if len(rows) > 1]
    for images in members.values():
        if len(images) > 1:
            rows = tuple(row for image in images for row in rows_by_image[image])
            groups.append(DuplicateGroup(rows, False, float(similarity[images].min())))
    return tuple(sorted(groups, key=lambda group: group.rows[0]))


def assign_leaders(
    hashes: UInt64[np.ndarray, " n"],
    structures: Int8[np.ndarray, "n p"],
    max_bits: int = MAX_HASH_BITS,
    min_similarity: float = MIN_SIMILARITY,
    block_rows: int = _BLOCK_ROWS,
    on_rows: Callable[[int], None] = lambda _: None,
) -> tuple[Int64[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
    """Cluster rows by similarity to leaders (leader clustering).

    Rows are processed in order; a row is assigned to the first leader it is similar to and becomes a leader if there
    is none. Clusters are therefore stars, and the frames of a video do not chain into one. Two rows are similar if
    their hashes differ in at most `max_bits` of 64 and the correlation of their fine structure, in [-1, 1], is
    at least `min_similarity`; featureless rows are similar to none.

    At most n x leaders / 2 hashes are compared, block by block: one core takes a minute for 100,000 faces that
    are all different, and 4 s if all show one scene. Memory grows with n only.

    Args:
        hashes: of `perceptual_hash`.
        structures: of `fine_structure`.
        max_bits: most bits in which similar hashes differ.
        min_similarity: lowest correlation of similar rows.
        block_rows: rows compared at a time; does not change the result.
        on_rows: called with the number of rows compared so far.

    Returns:
        For each row its leader and the similarity with it; a leader's are its own row and 1.
    """
    leaders = np.arange(len(hashes), dtype=np.int64)
    similarity = np.ones(len(hashes), np.float32)
    searched_rows = np.flatnonzero(structures.any(axis=1))
    signs = _hash_signs(hashes)
    known_leaders = np.empty(0, np.int64)

    def join(rows: np.ndarray, candidates: np.ndarray) -> None:
        pairs = _similar_pairs(signs, structures, rows, candidates, max_bits, min_similarity)
        # Sorted by row, then by leader: the first similar leader of a row comes first.
        for row, leader, score in zip(*(column.tolist() for column in pairs), strict=True):
            if leader < row and leaders[row] == row and leaders[leader] == leader:
                leaders[row], similarity[row] = leader, score

    for start in range(0, len(searched_rows), block_rows):
        rows = searched_rows[start : start + block_rows]
        for leader_start in range(0, len(known_leaders), 8 * block_rows):
            join(rows[leaders[rows] == rows], known_leaders[leader_start : leader_start + 8 * block_rows])
        unassigned = rows[leaders[rows] == rows]
        join(unassigned, unassigned)
        known_leaders = np.concatenate([known_leaders, unassigned[leaders[unassigned] == unassigned]])
        on_rows(start + len(rows))
    return leaders, similarity


def _hash_signs(hashes: UInt64[np.ndarray, " n"]) -> Int8[np.ndarray, "n 64"]:
    """Unpack hashes into one sign, 1 or -1, per bit."""
    bits = np.unpackbits(hashes.view(np.uint8).reshape(len(hashes), 8), axis=1)
    return (bits * 2).astype(np.int8) - np.int8(1)


def _similar_pairs(
    signs: Int8[np.ndarray, "n 64"],
    structures: Int8[np.ndarray, "n p"],
    left: Int64[np.ndarray, " l"],
    right: Int64[np.ndarray, " r"],
    max_bits: int,
    min_similarity: float,
) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"], Float32[np.ndarray, " k"]]:
    """Return the similar pairs of a left and a right row, sorted by left, then right row, and their similarity."""
    # The product of signs is the number of equal bits minus that of different bits: exact in float32, and BLAS.
    agreement = signs[left].astype(np.float32) @ signs[right].astype(np.float32).T
    left_index, right_index = np.nonzero(agreement >= 64 - 2 * max_bits)
    similarity = np.empty(len(left_index), np.float32)
    for start in range(0, len(left_index), _PAIR_BATCH):
        batch = slice(start, start + _PAIR_BATCH)
        similarity[batch] = _correlation(structures[left[left_index[batch]]], structures[right[right_index[batch]]])
    is_similar = similarity >= min_similarity
    return left[left_index[is_similar]], right[right_index[is_similar]], similarity[is_similar]


def _correlation(a: Int8[np.ndarray, "c p"], b: Int8[np.ndarray, "c p"]) -> Float32[np.ndarray, " c"]:
    """Correlate each row of `a` with that of `b`; rows have mean zero and are not all zero."""
    product, a_squared, b_squared = (
        np.einsum("cp,cp->c", left, right, dtype=np.int32) for left, right in ((a, b), (a, a), (b, b))
    )
    return (product / np.sqrt(a_squared.astype(np.float64) * b_squared)).astype(np.float32)
