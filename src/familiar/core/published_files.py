"""Networks that others publish and familiar can download: where, which bytes, under which terms."""

import os
from pathlib import Path

from familiar.core.download import PublishedFile

_ZOO = "https://github.com/opencv/opencv_zoo/raw/main/models"
# SHA-256 and length were computed from the files.
PUBLISHED_FILES = {
    "yunet": PublishedFile(
        url=f"{_ZOO}/face_detection_yunet/face_detection_yunet_2023mar.onnx",
        sha256="8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
        size_bytes=232_589,
        license="MIT",
    ),
    "sface": PublishedFile(
        url=f"{_ZOO}/face_recognition_sface/face_recognition_sface_2021dec.onnx",
        sha256="0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79",
        size_bytes=38_696_353,
        license="Apache-2.0",
    ),
}


def published_path(name: str) -> Path:
    """Return where a published file is kept on this machine, whether it is there or not.

    Args:
        name: one of `PUBLISHED_FILES`. The folder is that of the environment variable FAMILIAR_MODELS, or else the
            user's for the data of programs.
    """
    from platformdirs import user_data_path

    folder = os.environ.get("FAMILIAR_MODELS")
    return (Path(folder) if folder else user_data_path("familiar") / "models") / PUBLISHED_FILES[name].name
