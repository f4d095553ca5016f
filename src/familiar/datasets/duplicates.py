"""Photos that show the same picture: the same pixels, or nearly (saved again, scaled, brightened, cropped by 1 %).

Aligned faces all look alike to a coarse hash, so a hash only proposes: what decides is the correlation of
the fine structure, from which the large shapes that all faces share are taken out. On LFW (87 million
pairs) 1 pair in 800 passes the hash, and of the photos of different people only true duplicates pass both.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float32, Int8, Int64, UInt8, UInt64

from familiar.core.types import Photo

THUMBNAIL_PX = 32
MAX_HASH_BITS = 8  # of 64; JPEG of quality 10 and a crop by 1 % a side move 6 in one photo of a hundred
# The same shot reaches .95 and more, other takes of one scene .85 to .95, strangers on LFW .83 at most.
MIN_SIMILARITY = 0.9
FEATURELESS_LEVELS = 1.0  # gray levels; the plainest of 18,000 photos of faces has 4 of fine structure
_BLUR_PX = 3.0  # in the thumbnail: a tenth of the photo
_STEPS_PER_STD = 16  # fine structure up to 8 standard deviations fits into eight bits
_BLOCK_ROWS = 1024
_PAIRS_AT_ONCE = 4096


@dataclass(frozen=True)
class Alike:
    """Rows that show one picture; all resemble the first, and two others may be a little further apart.

    `exact`: the same pixels throughout. `similarity` is the lowest with the first, 1 where exact.
    """

    rows: tuple[int, ...]
    exact: bool
    similarity: float


def thumbnail(photo: Photo) -> UInt8[np.ndarray, "32 32 3"]:
    """The whole photo in RGB, squeezed into a square."""
    return cv2.resize(photo.rgb_u8, (THUMBNAIL_PX, THUMBNAIL_PX), interpolation=cv2.INTER_AREA)


def perceptual_hash(gray: UInt8[np.ndarray, "p p"]) -> int:
    """Difference hash of a gray thumbnail, 64 bits: whether each of 8 x 8 fields is darker than its right neighbor.

    Hashes are near when few bits differ. (dHash, N. Krawetz, "Kind of like that", 2013.)
    """
    fields = cv2.resize(gray, (9, 8), interpolation=cv2.INTER_AREA).astype(np.int16)
    return int.from_bytes(np.packbits(fields[:, :-1] < fields[:, 1:]).tobytes())


def fine_structure(gray: UInt8[np.ndarray, "p p"]) -> Int8[np.ndarray, " p*p"]:
    """What a blur takes away, in sixteenths of its standard deviation; all zero for a featureless photo."""
    lightness = gray.astype(np.float32)
    fine = lightness - cv2.GaussianBlur(lightness, (0, 0), _BLUR_PX)
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
) -> tuple[Alike, ...]:
    """Groups of two rows and more that show the same picture, in the order of their first rows.

    `digests` are equal where pixels are. A row is in one exact group and in one near group at most; a near
    group holds the copies of its pictures as well, and two different pictures at least.
    """
    copies = defaultdict[bytes, list[int]](list)
    for row, digest in enumerate(digests):
        copies[digest].append(row)
    pictures = list(copies.values())  # each once: a placeholder saved a thousand times is searched for once
    first = np.array([rows[0] for rows in pictures], np.int64)
    leaders, similarity = near_leaders(hashes[first], structures[first], on_rows=on_rows)
    members = defaultdict[int, list[int]](list)
    for picture, leader in enumerate(leaders.tolist()):
        members[leader].append(picture)
    found = [Alike(tuple(rows), True, 1.0) for rows in pictures if len(rows) > 1]
    for group in members.values():
        if len(group) > 1:
            rows = tuple(row for picture in group for row in pictures[picture])
            found.append(Alike(rows, False, float(similarity[group].min())))
    return tuple(sorted(found, key=lambda alike: alike.rows[0]))


def near_leaders(
    hashes: UInt64[np.ndarray, " n"],
    structures: Int8[np.ndarray, "n p"],
    max_bits: int = MAX_HASH_BITS,
    min_similarity: float = MIN_SIMILARITY,
    block_rows: int = _BLOCK_ROWS,
    on_rows: Callable[[int], None] = lambda _: None,
) -> tuple[Int64[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
    """For each row the first leader it resembles, and the similarity with it; itself (and 1) if there is none.

    Rows are taken in order, and one that resembles no leader becomes one: so groups are stars, and a
    video's frames do not chain into one. Two rows resemble each other when their hashes differ in at most
    `max_bits` of 64 and the correlation of their fine structure, [-1, 1], is at least `min_similarity`;
    rows without any resemble none. The result does not depend on `block_rows`.

    At most n x leaders / 2 hashes are compared, block by block: one core takes a minute for 100,000 faces that
    are all different, 4 s where all are one scene. Memory grows with n alone.
    """
    leaders = np.arange(len(hashes), dtype=np.int64)
    similarity = np.ones(len(hashes), np.float32)
    searched = np.flatnonzero(structures.any(axis=1))
    signs = _signs(hashes)
    known = np.empty(0, np.int64)  # leaders so far

    def join(rows: np.ndarray, candidates: np.ndarray) -> None:
        pairs = _alike(signs, structures, rows, candidates, max_bits, min_similarity)
        # Sorted by row, then by leader: the first leader that a row resembles comes first.
        for row, leader, score in zip(*(column.tolist() for column in pairs), strict=True):
            if leader < row and leaders[row] == row and leaders[leader] == leader:
                leaders[row], similarity[row] = leader, score

    for start in range(0, len(searched), block_rows):
        rows = searched[start : start + block_rows]
        for at in range(0, len(known), 8 * block_rows):
            join(rows[leaders[rows] == rows], known[at : at + 8 * block_rows])
        alone = rows[leaders[rows] == rows]
        join(alone, alone)
        known = np.concatenate([known, alone[leaders[alone] == alone]])
        on_rows(start + len(rows))
    return leaders, similarity


def _signs(hashes: UInt64[np.ndarray, " n"]) -> Int8[np.ndarray, "n 64"]:
    bits = np.unpackbits(hashes.view(np.uint8).reshape(len(hashes), 8), axis=1)
    return (bits * 2).astype(np.int8) - np.int8(1)


def _alike(
    signs: Int8[np.ndarray, "n 64"],
    structures: Int8[np.ndarray, "n p"],
    left: Int64[np.ndarray, " l"],
    right: Int64[np.ndarray, " r"],
    max_bits: int,
    min_similarity: float,
) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"], Float32[np.ndarray, " k"]]:
    """Pairs of a left and a right row that resemble each other, sorted so, with their similarity."""
    # The product of signs counts 1 for each equal bit and -1 for each other one: exact in float32, and BLAS.
    agreement = signs[left].astype(np.float32) @ signs[right].astype(np.float32).T
    row, column = np.nonzero(agreement >= 64 - 2 * max_bits)
    similarity = np.empty(len(row), np.float32)
    for at in range(0, len(row), _PAIRS_AT_ONCE):
        part = slice(at, at + _PAIRS_AT_ONCE)
        similarity[part] = _correlation(structures[left[row[part]]], structures[right[column[part]]])
    enough = similarity >= min_similarity
    return left[row[enough]], right[column[enough]], similarity[enough]


def _correlation(a: Int8[np.ndarray, "c p"], b: Int8[np.ndarray, "c p"]) -> Float32[np.ndarray, " c"]:
    """Of rows whose mean is zero; none of them is all zero."""
    product, a_squared, b_squared = (
        np.einsum("cp,cp->c", left, right, dtype=np.int32) for left, right in ((a, b), (a, a), (b, b))
    )
    return (product / np.sqrt(a_squared.astype(np.float64) * b_squared)).astype(np.float32)
