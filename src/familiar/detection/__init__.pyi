from .alignment import align, detect_and_align
from .detectors import CenterSquare, Detector, HaarFaces, WholePhoto, YuNetFaces, build_detector
from .quality import Face, detect_faces

__all__ = [
    "CenterSquare",
    "Detector",
    "Face",
    "HaarFaces",
    "WholePhoto",
    "YuNetFaces",
    "align",
    "build_detector",
    "detect_and_align",
    "detect_faces",
]
