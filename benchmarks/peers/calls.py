"""Run the other libraries' calls that stand in the comments of a page.

    calls.py PAGE PEOPLE --yunet FILE --sface FILE

It is started with the Python of an environment that has face_recognition, DeepFace and InsightFace. PEOPLE has a folder
of photos for each person. In a page's Python blocks, a line that is a comment is a call of the library that the heading
names; the calls of a block run one after another. Comments in console blocks that begin with a command of
face_recognition run too.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

COMMANDS = ("face_detection", "face_recognition")
PEOPLE = 3  # copied from those who have several photos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("people", type=Path)
    parser.add_argument("--yunet", type=Path, required=True)
    parser.add_argument("--sface", type=Path, required=True)
    options = parser.parse_args()
    page, yunet, sface = options.page.read_text(), options.yunet.resolve(), options.sface.resolve()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), options.people, yunet, sface)
        os.chdir(folder)
        os.environ["DEEPFACE_HOME"] = folder
        libraries = {"face_recognition": face_recognition, "DeepFace": deepface, "InsightFace": insightface}
        for heading, names in libraries.items():
            section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
            run_block(heading, comments(section), names(yunet))
        for command in re.findall(rf"# ((?:{'|'.join(COMMANDS)}) .*)$", page, flags=re.MULTILINE):
            program, *words = command.split()
            path = Path(sys.executable).with_name(program)
            subprocess.run([sys.executable, path, *words], check=True, stdout=subprocess.DEVNULL)
            print(f"command: {command}")


def prepare(folder: Path, people: Path, yunet: Path, sface: Path) -> None:
    """Copy photos under the names that the page uses, and the networks to where the libraries look for them."""
    chosen = [person for person in sorted(people.iterdir()) if len(list(person.glob("*.jpg"))) > 2][:PEOPLE]
    for name in ("known", "unknown"):
        (folder / name).mkdir()
    for person in chosen:
        shutil.copytree(person, folder / "people" / person.name)
        first, *_, last = sorted(person.glob("*.jpg"))
        shutil.copy(first, folder / "known" / f"{person.name}.jpg")
        shutil.copy(last, folder / "unknown" / f"{person.name}.jpg")
    first, second, *_ = sorted(chosen[0].glob("*.jpg"))
    shutil.copy(first, folder / "a.jpg")
    shutil.copy(second, folder / "b.jpg")
    weights = folder / ".deepface" / "weights"
    weights.mkdir(parents=True)
    (folder / "buffalo_l").mkdir()
    (weights / yunet.name).symlink_to(yunet)
    for link in (weights / sface.name, folder / "w600k_r50.onnx", folder / "buffalo_l" / "w600k_r50.onnx"):
        link.symlink_to(sface)
    (folder / "buffalo_l" / "det_10g.onnx").symlink_to(yunet)


def comments(section: str) -> list[str]:
    (block,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return re.findall(r"^# (.*)$", block, flags=re.MULTILINE)


def run_block(heading: str, calls: list[str], names: dict[str, Any]) -> None:
    for call in calls:
        exec(call, names)
        print(f"{heading}: {call}", flush=True)


def face_recognition(_: Path) -> dict[str, Any]:
    import face_recognition as library
    from sklearn.neighbors import KNeighborsClassifier

    paths = sorted(Path("people").rglob("*.jpg"))
    paths = [path for path in paths if library.face_locations(library.load_image_file(path))]
    names = [path.parent.name for path in paths]
    return {"face_recognition": library, "KNeighborsClassifier": KNeighborsClassifier, "paths": paths, "names": names}


def deepface(_: Path) -> dict[str, Any]:
    from deepface import DeepFace

    return {"DeepFace": DeepFace}


def insightface(yunet: Path) -> dict[str, Any]:
    import cv2
    from insightface.app import FaceAnalysis, face_analysis
    from insightface.model_zoo import get_model
    from insightface.utils import face_align

    class YuNetDetector:
        """Stands in for InsightFace's detector."""

        taskname, input_shape, input_mean, input_std = "detection", None, 0.0, 1.0

        def prepare(self, _: int, *, det_thresh: float, **__: object) -> None:
            self.network = cv2.FaceDetectorYN.create(str(yunet), "", (64, 64), det_thresh)

        def detect(self, img: np.ndarray, **_: object) -> tuple[np.ndarray, np.ndarray]:
            self.network.setInputSize(img.shape[1::-1])
            rows = self.network.detect(img)[1]
            rows = np.empty((0, 15), np.float32) if rows is None else rows
            boxes = np.column_stack([rows[:, :2], rows[:, :2] + rows[:, 2:4], rows[:, 14]])
            return boxes, rows[:, 4:14].reshape(-1, 5, 2)

    def get_any_model(path: str, **options: Any) -> object:
        return YuNetDetector() if Path(path).name == "det_10g.onnx" else get_model(path, **options)

    face_analysis.model_zoo.get_model = get_any_model
    return {"FaceAnalysis": FaceAnalysis, "cv2": cv2, "face_align": face_align, "get_model": get_model}


if __name__ == "__main__":
    main()
