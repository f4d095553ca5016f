"""What is known of published networks: which crops they take and how they standardize them."""

from dataclasses import dataclass
from typing import Literal

from familiar.photos.preprocessing import IMAGENET_MEAN_RGB, IMAGENET_STD_RGB

Triple = tuple[float, float, float]
HALF: Triple = (0.5, 0.5, 0.5)
RAW_STD: Triple = (1 / 255, 1 / 255, 1 / 255)  # with mean 0: the network takes values from 0 to 255


@dataclass(frozen=True)
class Preset:
    """How to use a family of published networks.

    Attributes:
        description: which networks.
        mean: subtracted from values in [0, 1], in the order of `color_order`.
        std: divides the difference.
        size_px: side of the crop, for networks whose file does not say it.
        detector: finds the faces that the network takes; "none": it takes the whole photo.
        resize: as in `Preprocessing`.
        resize_px: as in `Preprocessing`; None: the crop's side.
        margin: as in `Preprocessing`.
        template: as in `Preprocessing`.
        color_order: order of the channels.
        token: which of several vectors per photo, "n t d", is the embedding; None: the network must return one.
        license: terms of the published weights; None: they differ, so the user has to give them.
        source: who published them.
        sha256: of published files, by which the preset is recognized.
    """

    description: str
    mean: Triple
    std: Triple
    size_px: int
    detector: str = "none"
    resize: Literal["stretch", "center_crop"] = "stretch"
    resize_px: int | None = None
    margin: float = 0.0
    template: Literal["arcface", "box"] = "arcface"
    color_order: Literal["RGB", "BGR"] = "RGB"
    token: int | None = None
    license: str | None = None
    source: str = ""
    sha256: tuple[str, ...] = ()


PRESETS = {
    "sface": Preset(
        description="SFace of OpenCV's model zoo, people, 112 px",
        mean=(0.0, 0.0, 0.0),
        std=RAW_STD,
        size_px=112,
        detector="yunet",
        license="Apache-2.0",
        source="github.com/opencv/opencv_zoo, models/face_recognition_sface",
        # Computed from face_recognition_sface_2021dec.onnx.
        sha256=("0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79",),
    ),
    "arcface": Preset(
        description="InsightFace's recognition networks and others trained like them, people, 112 px",
        mean=HALF,
        std=HALF,
        size_px=112,
        detector="yunet",
        source="github.com/deepinsight/insightface",
    ),
    "facenet": Preset(
        description="FaceNet as published by facenet-pytorch, people, 160 px, loose crops",
        mean=HALF,
        std=(128 / 255, 128 / 255, 128 / 255),
        size_px=160,
        detector="yunet",
        margin=0.1,
        template="box",
        source="github.com/timesler/facenet-pytorch",
    ),
    "megadescriptor": Preset(
        description="MegaDescriptor of WildlifeDatasets, whole animals, 224 or 384 px",
        mean=HALF,
        std=HALF,
        size_px=224,
        license="CC BY-NC 4.0",
        source="huggingface.co/BVRA",
    ),
    "dinov2": Preset(
        description="DINOv2 of Meta, anything, 224 px; the class token",
        mean=IMAGENET_MEAN_RGB,
        std=IMAGENET_STD_RGB,
        size_px=224,
        resize="center_crop",
        resize_px=256,
        token=0,
        license="Apache-2.0",
        source="github.com/facebookresearch/dinov2",
    ),
    "clip": Preset(
        description="the image half of OpenAI's CLIP, anything, 224 px",
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
        size_px=224,
        resize="center_crop",
        license="MIT",
        source="github.com/openai/CLIP",
    ),
    "miewid": Preset(
        description="MiewID of Conservation X Labs, whole animals, 440 px",
        mean=IMAGENET_MEAN_RGB,
        std=IMAGENET_STD_RGB,
        size_px=440,
        source="huggingface.co/conservationxlabs",
    ),
}


def preset_of(sha256: str) -> str | None:
    """Return the name of the preset for a published file, or None.

    Args:
        sha256: of the file, as hexadecimal digits.
    """
    return next((name for name, preset in PRESETS.items() if sha256 in preset.sha256), None)
