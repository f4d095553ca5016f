"""The two known label errors of whole LFW are found: among the worst mistakes, and by the leak check."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest

from familiar.core.vectors import normalize
from familiar.datasets.folders import scan_folders
from familiar.evaluation.leaks import find_leaks
from familiar.metrics.mistakes import worst_mistakes
from familiar.photos.decoding import load_photo

FAULTS = [{"Bart_Hendricks", "Ricky_Ray"}, {"Carlos_Beltran", "Raul_Ibanez"}]
SIDE_PX = 20


def pixels(photo: Path) -> np.ndarray:
    """Embed the fine structure of a photo: no model, but enough to recognize the same photo under two names."""
    gray = cv2.cvtColor(load_photo(photo).rgb_u8, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(gray, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA).astype(np.float32)
    return (small - cv2.GaussianBlur(small, (0, 0), 2)).ravel()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.shared_data
def test_finds_two_known_lfw_label_faults(shared_data: Path):
    table = scan_folders(shared_data / "lfw_112")
    with ThreadPoolExecutor(2) as pool:
        rows = np.stack(list(pool.map(pixels, table.photos)))
    negatives = worst_mistakes(normalize(rows), table.labels, 12).negatives
    pairs = [
        {table.names[table.labels[row]].split("/")[1] for row in pair}
        for pair in zip(negatives.left.tolist(), negatives.right.tolist(), strict=True)
    ]
    leaks = find_leaks(table)[0].across_identities
    leaked = [{identity.split("/")[1] for identity in leak.identities} for leak in leaks]
    for fault in FAULTS:
        assert fault in pairs
        assert fault in leaked
