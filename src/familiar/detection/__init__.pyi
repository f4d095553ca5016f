from .alignment import align
from .detector import Detector
from .detectors import CenterSquare, WholePhoto, build_detector
from .faces import crop_photo, find_faces
from .heads import HeadDetector
from .opencv import YuNetFaces
from .pets_and_people import PetsAndPeople

__all__ = [
    "CenterSquare",
    "Detector",
    "HeadDetector",
    "PetsAndPeople",
    "WholePhoto",
    "YuNetFaces",
    "align",
    "build_detector",
    "crop_photo",
    "find_faces",
]
