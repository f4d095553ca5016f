"""Cropping of a face from a photo file, for a network."""

from familiar.core.types import Crop
from familiar.detection.alignment import detect_and_align
from familiar.detection.detector import Detector
from familiar.detection.detectors import WholePhoto
from familiar.photos.decoding import PhotoOpener, Source, load_photo
from familiar.photos.preprocessing import Preprocessing


def crop_photo(
    source: Source,
    preprocessing: Preprocessing,
    detector: Detector | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
    face: int | None = None,
) -> Crop:
    """Load a source and crop one of its faces for a network.

    Args:
        source: what `open_photo` loads.
        preprocessing: of the network.
        detector: finds the face; None: the photo is a crop already.
        open_photo: loads the source.
        face: number of the face, counted from the left and from 1; None: the best one.

    Returns:
        The face, with its number and that of all faces in the photo.

    Raises:
        NoFaceFound: no face is found, or none of this number.
        FamiliarError: whatever `open_photo` raises.
    """
    detector = detector or WholePhoto()
    photo = open_photo(source, min_side_px=min_decoded_side_px(detector, preprocessing))
    return detect_and_align(photo, detector, preprocessing, face)


def min_decoded_side_px(detector: Detector, preprocessing: Preprocessing) -> int | None:
    """Return the `min_side_px` to load a photo with: a crop is needed at the network's size, others in full (None)."""
    is_crop = isinstance(detector, WholePhoto)
    return max(preprocessing.size_px, preprocessing.resize_px) if is_crop else None
