"""Whether photos are crops of faces already, in which a detector can only lose."""

from collections.abc import Sequence

from familiar.core.errors import FamiliarError
from familiar.detection.detector import Detector
from familiar.detection.detectors import CenterSquare, WholePhoto
from familiar.detection.heads import SEARCH_SIDE_PX
from familiar.photos.decoding import PhotoOpener, Source, load_photo

SAMPLED_PHOTOS, MIN_FACES = 40, 8
# Share of the photo that a face's box fills. In 9 of 10 crops of LFW, ORL, DogFaceNet, cats and pandas it is more than
# .5; in 9 of 10 photos of LFW with some context less than .4, in those of phones less than .3.
FILLED, NEARLY_ALL = 0.45, 0.9


def are_crops(photos: Sequence[Source], detector: Detector, *, open_photo: PhotoOpener[Source] = load_photo) -> bool:
    """Return whether a face fills nearly all of a set of photos, as far as the detector finds one in some of them.

    Args:
        photos: what `open_photo` loads. Of many, 40 are looked at, evenly spread.
        detector: finds the faces. One that looks for nothing is never told that photos are crops: it takes them whole.
        open_photo: loads a photo; one that cannot be read is left out.
    """
    if isinstance(detector, WholePhoto | CenterSquare) or len(photos) < MIN_FACES:
        return False
    step = max(1, len(photos) // SAMPLED_PHOTOS)
    filled: list[bool] = []
    for source in photos[::step][:SAMPLED_PHOTOS]:
        try:
            photo = open_photo(source, min_side_px=SEARCH_SIDE_PX)
        except FamiliarError:
            continue
        faces = detector.detect(photo)
        if faces:
            width, height = photo.size_px
            filled.append(len(faces) == 1 and faces[0].box_xyxy_px.area >= FILLED * width * height)
    return len(filled) >= MIN_FACES and sum(filled) >= NEARLY_ALL * len(filled)
