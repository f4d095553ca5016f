from .alignment import align, detect_and_align
from .cropping import crop_photo
from .detector import Detector
from .detectors import CenterSquare, WholePhoto, build_detector
from .heads import HeadDetector
from .opencv import HaarFaces, YuNetFaces
from .pets_and_people import PetsAndPeople
from .quality import detect_faces

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
    "detect_and_align",
    "detect_faces",
]
