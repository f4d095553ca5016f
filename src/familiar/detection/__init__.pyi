from .alignment import align
from .detector import Detector
from .detectors import CenterSquare, WholePhoto, build_detector
from .faces import crop_photo, find_faces
from .heads import HeadDetector
from .opencv import HaarFaces, YuNetFaces
from .pets_and_people import PetsAndPeople

__all__ = [
    "CenterSquare",
    "Detector",
    "HaarFaces",
    "HeadDetector",
    "PetsAndPeople",
    "WholePhoto",
    "YuNetFaces",
    "align",
    "build_detector",
    "crop_photo",
    "find_faces",
]
