"""Starts `worker.py` in the environment of the other libraries, and sends it jobs."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

WORKER = Path(__file__).with_name("worker.py")
PACKAGES = ("deepface", "onnxruntime", "face_recognition", "dlib-bin", "opencv-python-headless")


class Peers:
    """A running worker."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process, self._folder = process, folder

    def ask(self, job: str, **values: Any) -> dict[str, Any]:
        """Send a job and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"job": job, **values}) + "\n")
        self._process.stdin.flush()
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError(f"the worker ended during {job}; its messages are above")
        return json.loads(answer)

    def embed(self, library: str, photos: Sequence[Path]) -> tuple[float, np.ndarray]:
        """Return the seconds, and a vector for each photo, NaN where no face was found."""
        output = self._folder / "vectors.npy"
        seconds = self.ask(library, photos=[str(photo) for photo in photos], output=str(output))["seconds"]
        return seconds, np.load(output)

    def chinese_whispers(self, vectors: np.ndarray, distance: float) -> np.ndarray:
        """Cluster with dlib."""
        np.save(self._folder / "rows.npy", vectors)
        answer = self.ask("chinese_whispers", vectors=str(self._folder / "rows.npy"), distance=distance)
        return np.array(answer["clusters"])


@contextmanager
def running_peers(environment: Path, yunet: Path, sface: Path) -> Iterator[Peers]:
    """Start the worker; DeepFace gets the same two files as we use.

    Args:
        environment: a virtual environment with deepface and face_recognition.
        yunet: the detector's ONNX file.
        sface: the network's ONNX file.
    """
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / ".deepface" / "weights"
        weights.mkdir(parents=True)
        for file in (yunet, sface):
            (weights / file.name).symlink_to(file.resolve())
        command = [str(environment / "bin" / "python"), str(WORKER)]
        # What this process was told about its own modules is not for the other environment.
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        variables |= {"DEEPFACE_HOME": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        ) as process:
            try:
                yield Peers(process, Path(folder))
            finally:
                process.terminate()
