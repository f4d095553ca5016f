"""Runs DeepFace and face_recognition for `people.py`. It is started with the Python of their own environment.

Reads one job per line from standard input, a JSON object, and answers each with one line on standard output. Photos are
embedded one after another, as these libraries do it; both use all cores by their own defaults.
"""

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Face = tuple[tuple[float, float], Any]  # center of the box in the photo, vector


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")  # the libraries print
    os.dup2(2, 1)
    embed = {"deepface": deepface(), "face_recognition": face_recognition()}
    for line in sys.stdin:
        job = json.loads(line)
        if job["job"] == "versions":
            answer = {name: importlib.metadata.version(name) for name in job["packages"]}
        elif job["job"] == "chinese_whispers":
            answer = {"clusters": chinese_whispers(np.load(job["vectors"]), job["distance"])}
        else:
            answer = timed(embed[job["job"]], job["photos"], job["output"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def timed(embed: Callable[[str], list[Face]], photos: list[str], output: str) -> dict[str, float]:
    """Embed photos; write a vector for each, or NaN where no face was found. Return the seconds of the embedding."""
    started = time.perf_counter()
    faces = [embed(photo) for photo in photos]
    seconds = time.perf_counter() - started
    chosen = [central(*row) for row in zip(faces, photos, strict=True)]
    length = next(len(vector) for vector in chosen if vector is not None)
    nothing = np.full(length, np.nan)
    np.save(output, np.array([nothing if vector is None else vector for vector in chosen], np.float64))
    return {"seconds": seconds}


def central(faces: list[Face], photo: str) -> Any | None:
    """Return the vector of the face nearest to the middle: LFW's photos show the person there."""
    from PIL import Image

    with Image.open(photo) as image:
        middle = np.array(image.size) / 2
    nearest = min(faces, key=lambda face: float(np.hypot(*(np.array(face[0]) - middle))), default=None)
    return None if nearest is None else nearest[1]


def deepface() -> Callable[[str], list[Face]]:
    from deepface import DeepFace
    from deepface.modules.exceptions import FaceNotDetected

    def embed(photo: str) -> list[Face]:
        try:
            faces = DeepFace.represent(photo, model_name="SFace", detector_backend="yunet")
        except FaceNotDetected:
            return []
        areas = [face["facial_area"] for face in faces]
        centers = [(area["x"] + area["w"] / 2, area["y"] + area["h"] / 2) for area in areas]
        return [(center, face["embedding"]) for center, face in zip(centers, faces, strict=True)]

    return embed


def face_recognition() -> Callable[[str], list[Face]]:
    import face_recognition as library

    def embed(photo: str) -> list[Face]:
        image = library.load_image_file(photo)
        boxes = library.face_locations(image)  # HOG; `face_encodings` would do the same
        centers = [((left + right) / 2, (top + bottom) / 2) for top, right, bottom, left in boxes]
        return list(zip(centers, library.face_encodings(image, boxes), strict=True))

    return embed


def chinese_whispers(vectors: np.ndarray, distance: float) -> list[int]:
    import dlib

    return list(dlib.chinese_whispers_clustering([dlib.vector(row.tolist()) for row in vectors], distance))


if __name__ == "__main__":
    main()
