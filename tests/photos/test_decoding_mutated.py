"""Thousands of broken photos are loaded in another process, so that a crash there fails the test here."""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from familiar.core.errors import UnreadablePhoto
from familiar.photos.decoding import load_photo
from support.tiers import small_and_exhaustive
from support.valid_photos import png, valid_photos

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured and limited as Linux does")

MAX_PIXELS = 4_000_000
BYTES_PER_PIXEL = 24  # at the peak: a decoder's frame, its copy without alpha, and the result
SECONDS_EACH = 5
ADDRESS_SPACE = 6 * 2**30  # numpy and OpenCV reserve much that they never touch


# Mutations


def mutant(seed: int, photos: list[bytes]) -> bytes:
    """Truncate a photo, change bits or bytes, or splice it with another; deterministic for a seed."""
    dice = random.Random(seed)
    data, other = bytearray(dice.choice(photos)), dice.choice(photos)
    match dice.choice(["cut", "bits", "bytes", "header", "tail", "piece", "insert"]):
        case "cut":
            del data[dice.randrange(len(data)) :]
        case "bits":
            for _ in range(dice.randint(1, 8)):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        case "bytes":
            for _ in range(dice.randint(1, 8)):
                data[dice.randrange(len(data))] = dice.randrange(256)
        case "header":  # with lengths and sizes
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(min(len(data), 64))] = dice.choice([0, 1, 127, 128, 255])
        case "tail":
            data[dice.randrange(len(data)) :] = other[dice.randrange(len(other)) :]
        case "piece":
            start, length = dice.randrange(len(data)), dice.randint(1, 64)
            data[start : start + length] = other[(source := dice.randrange(len(other))) : source + length]
        case _:
            position = dice.randrange(len(data))
            data[position:position] = dice.randbytes(dice.randint(1, 40))
    return bytes(data)


# The loading process


def peak_bytes() -> int:
    """Return the peak memory since `forget_peak`; not `ru_maxrss`, which a child inherits from its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def load_in_turn(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Print one line of JSON per file: the outcome, and by how many bytes the peak memory rose."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    path = folder / "photo.jpg"  # the last one, if this process is killed
    for number, (name, data) in enumerate(files):
        path.write_bytes(data)
        side = (None, 8, 20)[number % 3]
        forget_peak()
        before = peak_bytes()
        signal.alarm(SECONDS_EACH)  # not caught, so it also ends a decoder that hangs
        try:
            photo = load_photo(path, min_side_px=side, max_pixels=MAX_PIXELS)
        except UnreadablePhoto as error:
            outcome = "refused" if str(error).startswith(f"{path}: ") else f"refused without its name: {error}"
        except BaseException as error:
            outcome = repr(error)
        else:
            width, height = photo.source_size_px
            outcome = "photo" if 0 < width * height <= MAX_PIXELS else f"{width} x {height} px"
        signal.alarm(0)
        sys.stdout.write(json.dumps([name, outcome, peak_bytes() - before]) + "\n")


def load_elsewhere(files: str, folder: Path) -> list[tuple[str, str, int]]:
    """Return (name, outcome, bytes by which the peak rose) of each file, loaded by `load_in_turn`.

    Args:
        files: a number of mutants, or "bombs".
        folder: where each file is written in turn.
    """
    done = subprocess.run(
        [sys.executable, "-u", __file__, files, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    answers = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"died of {done.returncode} after {answers[-1:]}: {done.stderr[-2000:]}"
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("mutants", small_and_exhaustive(240, 2400))
def test_mutated_photos_load_or_are_rejected_with_bounded_memory(mutants: int, tmp_path: Path) -> None:
    answers = load_elsewhere(str(mutants), tmp_path)
    assert len(answers) == mutants
    assert [answer for answer in answers if answer[1] not in ("photo", "refused")] == []
    for outcome in ("photo", "refused"):  # neither all broken nor all intact
        assert sum(answer[1] == outcome for answer in answers) > mutants / 5
    assert max(rise for _, _, rise in answers) < BYTES_PER_PIXEL * MAX_PIXELS


# Small files that declare large sizes


def resized(data: bytes, offset: int, layout: str, *sizes: int) -> bytes:
    return data[:offset] + (size := struct.pack(layout, *sizes)) + data[offset + len(size) :]


def tiff_of(width: int, height: int, data: bytes) -> bytes:
    """Return `data` with another declared size, in Pillow's byte order and entries of 12 bytes."""
    (start,) = struct.unpack_from("<I", data, 4)
    for entry in range(struct.unpack_from("<H", data, start)[0]):
        offset = start + 2 + 12 * entry
        tag = struct.unpack_from("<H", data, offset)[0]
        if tag in (256, 257):
            data = resized(data, offset, "<HHII", tag, 4, 1, width if tag == 256 else height)
    return data


def bombs() -> dict[str, tuple[bytes, str]]:
    """Return each file with its expected outcome."""
    sound = valid_photos()
    jpeg, progressive, gif, animated = (sound[name] for name in ("jpeg", "jpeg-progressive", "gif", "webp-animated"))
    webp, tiff = sound["webp-lossless"], sound["tiff"]
    vp8l = webp.index(b"VP8L") + 9
    much = bytes(64 * 2**20)
    packed = zlib.compress(much, 9)
    deflated = sound["tiff-deflate"]
    avif, tiles = sound["avif"], sound["tiles"]
    refused: dict[str, bytes] = {
        "avif": resized(avif, avif.index(b"ispe") + 8, ">II", 16000, 16000),
        "avif-beyond-its-decoder": resized(avif, avif.index(b"ispe") + 8, ">II", 60000, 60000),
        "heic": resized(sound["rgb"], sound["rgb"].index(b"ispe") + 8, ">II", 60000, 60000),
        "heic-tiles": resized(tiles, tiles.rindex(b"ispe") + 8, ">II", 16000, 16000),
        "jpeg": resized(jpeg, jpeg.index(b"\xff\xc0") + 5, ">HH", 65500, 65500),
        "jpeg-progressive": resized(progressive, progressive.index(b"\xff\xc2") + 5, ">HH", 65500, 65500),
        "gif": resized(gif, 6, "<HH", 65535, 65535),
        "webp": resized(webp, vp8l, "<I", 8190 | 8190 << 14),
        "webp-beyond-pillow": resized(webp, vp8l, "<I", 16382 | 16382 << 14),
        "webp-animated": resized(animated, animated.index(b"VP8X") + 12, "<IH", 8190 | (8190 & 255) << 24, 8190 >> 8),
        "tiff": tiff_of(60000, 60000, tiff),
        "tiff-endless": tiff_of(2**31, 2**31, tiff),
        "ppm": b"P6\n60000 60000\n255\n",
        "ppm-text": b"P3\n60000 60000\n255\n" + b"1 " * 1000,
        "ppm-digits": b"P6\n" + b"9" * 10_000 + b" 1\n255\n",
        "png-wide": png(2**31 - 1, 1, bytes(1000)),
        "bmp-runs": b"BM"
        + struct.pack("<IIIIiiHHIIiiII", 1102, 0, 1078, 40, 60000, 60000, 1, 8, 1, 0, 0, 0, 256, 0)
        + bytes(1024)
        + b"\xff\x01" * 12,
        "png-text": png(8, 8, bytes(200), (b"zTXt", b"x\0\0" + packed)),
        "png-profile": png(8, 8, bytes(200), (b"iCCP", b"x\0\0" + packed)),
    }
    # Within the limit, with nothing after the header.
    cut = {"png": png(2000, 2000, b""), "ppm": b"P6\n2000 2000\n255\n", "tiff": tiff_of(2000, 2000, deflated)}
    loaded = {
        "png-with-more-than-its-pixels": png(8, 8, much),
        "png-as-large-as-allowed": png(2000, 2000, bytes(2000 * 6001)),
        "gif-as-large-as-allowed": resized(gif, 6, "<HH", 2000, 2000),
    }
    return {
        **{name: (data, "refused") for name, data in refused.items()},
        **{f"{name}-cut": (data, "refused") for name, data in cut.items()},
        **{name: (data, "photo") for name, data in loaded.items()},
    }


@pytest.mark.slow
def test_decompression_bombs_use_bounded_memory(tmp_path: Path) -> None:
    answers = load_elsewhere("bombs", tmp_path)
    expected = {name: outcome for name, (_, outcome) in bombs().items()}
    assert {name: outcome for name, outcome, _ in answers} == expected
    for name, _, rise in answers:
        within = name.endswith(("-cut", "-allowed"))
        assert rise < (BYTES_PER_PIXEL * MAX_PIXELS if within else 20 * 2**20), name


if __name__ == "__main__":
    photos = list(valid_photos().values())
    load_in_turn(
        ((name, data) for name, (data, _) in bombs().items())
        if sys.argv[1] == "bombs"
        else ((str(seed), mutant(seed, photos)) for seed in range(int(sys.argv[1]))),
        Path(sys.argv[2]),
    )
