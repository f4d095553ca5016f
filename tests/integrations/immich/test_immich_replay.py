"""What an Immich server does with the answers: groups, Reset and Refresh, names from sidecars, a change of models."""

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from immich_replay import ImmichDouble, answers, judge
from PIL import Image

from familiar import Box
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery import Gallery
from familiar.integrations.xmp.export import export_xmp
from support.color_album import SquareDetector, draw_album, draw_photo

LEFT, RIGHT = (0, 0, 50, 100), (50, 0, 100, 100)


def answer(*faces: tuple[tuple[int, int, int, int], float]) -> dict[str, Any]:
    """Return what a machine-learning server answers: faces of a box and of an angle on a circle."""
    described = []
    for (x1, y1, x2, y2), angle_degrees in faces:
        angle = math.radians(angle_degrees)
        numbers = [math.cos(angle), math.sin(angle), *[0.0] * 510]
        corners = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        described.append({"boundingBox": corners, "embedding": json.dumps(numbers), "score": 0.9})
    return {"facial-recognition": described, "imageHeight": 100, "imageWidth": 100}


def immich(answered: dict[str, dict[str, Any]], **settings: Any) -> ImmichDouble:
    """Return an Immich server with a photo of each name, whose content is the name."""
    photos = {name: name.encode() for name in answered}
    return ImmichDouble(lambda content: answered[content.decode()], photos=photos, **settings)


def groups(double: ImmichDouble) -> list[list[str]]:
    return sorted(sorted(face.photo for face in faces) for faces in double.people().values())


def test_a_person_needs_three_near_faces():
    angles = {"a": 0, "b": 10, "c": 20, "d": 90, "e": 95, "f": 180}
    double = immich({name: answer((LEFT, angle)) for name, angle in angles.items()}, max_distance=0.1)
    double.detect("missing")
    double.recognize("missing")
    assert groups(double) == [["a", "b", "c"]]
    assert sum(face.person is None for face in double.faces) == 3, "two are too few, and one is alone"


def test_a_face_with_few_neighbors_waits_until_the_others_have_people():
    angles = {"a": 35, "b": 0, "c": 5, "d": 10}  # a is near d only, and comes first
    double = immich({name: answer((LEFT, angle)) for name, angle in angles.items()}, max_distance=0.11)
    double.detect("missing")
    double.recognize("missing")
    assert groups(double) == [["a", "b", "c", "d"]]


def test_the_nightly_run_takes_what_came_too_early():
    angles = {"early": 0, "b": 10, "c": 20}
    answered = {name: answer((LEFT, angle)) for name, angle in angles.items()}
    double = immich(answered, max_distance=0.1)
    later = {name: double.photos.pop(name) for name in ("b", "c")}
    double.detect("missing")
    double.recognize("missing")
    assert groups(double) == []
    double.photos |= later
    double.detect("missing")
    double.recognize("missing")
    assert groups(double) == [["b", "c", "early"]]


def test_refresh_keeps_the_numbers_of_the_old_model_and_reset_deletes_names():
    answered = {name: answer((LEFT, angle), (RIGHT, 90)) for name, angle in {"a": 0, "b": 5, "c": 9}.items()}
    double = immich(answered, max_distance=0.1)
    double.detect("missing")
    double.recognize("missing")
    assert groups(double) == [["a", "b", "c"]] * 2
    double.names[1] = "Mia"
    for name in answered:  # of another model: other numbers, and the right face is not found
        answered[name] = answer((LEFT, 45))
    double.detect("refresh")
    assert {face.box for face in double.faces} == {Box(0, 0, 0.5, 1)}
    assert all(face.embedding is not None and face.embedding[0] > 0.9 for face in double.faces), "the old numbers"
    assert double.names == {1: "Mia"}
    double.detect("reset")
    double.recognize("reset")
    assert all(face.embedding is not None and face.embedding[0] < 0.8 for face in double.faces)
    assert double.names == {}
    assert groups(double) == [["a", "b", "c"]]


def test_names_of_sidecars_survive_reset_and_spread():
    answered = {name: answer((LEFT, angle)) for name, angle in {"a": 0, "b": 5, "c": 9}.items()}
    double = immich(answered, max_distance=0.1)
    double.read_metadata("a", [("Mia", Box(0, 0, 0.5, 1))])
    for job in ("missing", "reset"):
        double.detect(job)
        double.recognize(job)
        assert groups(double) == [["a", "b", "c"]]
        assert list(double.names.values()) == ["Mia"]
    assert [face.source for face in double.faces if face.photo == "a"] == ["exif"], "no second face"


def test_judge_counts_individuals_who_became_people():
    angles = {"mia1": 0, "mia2": 5, "mia3": 9, "tom1": 90, "tom2": 95, "tom3": 180}
    double = immich({name: answer(((25, 25, 75, 75), angle)) for name, angle in angles.items()}, max_distance=0.1)
    double.detect("missing")
    double.recognize("missing")
    result = judge(double, {name: name[:3] for name in angles})
    assert (result.individuals, result.recognized, result.people, result.pure) == (2, 1, 1, 1)


def regions_of_sidecar(sidecar: Path, orientation: int = 1) -> list[tuple[str, Box]]:
    """Read names as Immich does: by ExifTool, from the regions of the Metadata Working Group, turned with the photo."""
    command = ["exiftool", "-json", "-struct", "-n", "-RegionInfo", sidecar]
    if shutil.which("exiftool") is None:
        pytest.skip("needs ExifTool: apt install libimage-exiftool-perl")
    (tags,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    information = tags.get("RegionInfo", {})
    if not information.get("AppliedToDimensions"):  # Immich takes no others
        return []
    regions = []
    for region in information["RegionList"]:
        x, y, width, height = (float(region["Area"][side]) for side in ("X", "Y", "W", "H"))
        if orientation == 6:  # "Rotate 90 CW"
            x, y, width, height = 1 - y, x, height, width
        box = Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        regions.append((region["Name"], box))
    return regions


@contextmanager
def served(*models: Path | str) -> Iterator[Callable[[bytes], Any]]:
    with answers([str(model) for model in models], None) as ask:
        yield ask


def test_individuals_of_familiar_become_people_and_keep_their_names_by_sidecars(
    tmp_path: Path, mean_color_bundle: Path
):
    paths = draw_album(tmp_path / "photos", red=4, green=4)
    gallery = Gallery.create(tmp_path / "album", Embedder(mean_color_bundle, threads=1))
    gallery.enroll(paths, WholePhoto())
    gallery.split([1, 2], "Mia", propagate=False)
    export_xmp(gallery)
    gallery.close()
    with served(mean_color_bundle) as ask:
        double = ImmichDouble(ask, photos={path.name: path.read_bytes() for path in paths})
        for path in paths:
            sidecar = Path(f"{path}.xmp")
            if sidecar.exists():
                double.read_metadata(path.name, regions_of_sidecar(sidecar))
        double.detect("missing")
        double.recognize("missing")
        colors = [["green"], ["red"]]
        assert [sorted({name[: -len("1.png")] for name in each}) for each in groups(double)] == colors
        assert list(double.names.values()) == ["Mia"]
        double.ask = lambda photo: by_another_model(ask(photo))
        double.detect("reset")
        double.recognize("reset")
        assert list(double.names.values()) == ["Mia"]
        assert all(face.embedding is not None and not face.embedding[:256].any() for face in double.faces)


def by_another_model(answer: Any) -> Any:
    """Return an answer with its numbers in another block."""
    faces = [
        face | {"embedding": json.dumps(np.roll(json.loads(face["embedding"]), 256).tolist())}
        for face in answer["facial-recognition"]
    ]
    return answer | {"facial-recognition": faces}


@pytest.mark.parametrize("orientation", [1, 6])
def test_regions_of_sidecars_are_where_immich_looks_for_them(tmp_path: Path, mean_color_bundle: Path, orientation: int):
    upright = np.asarray(Image.open(draw_photo(tmp_path / "drawn.png", "red", "green")))
    stored = upright if orientation == 1 else np.rot90(upright)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "a.jpg", exif=exif, quality=95)
    with Gallery.create(tmp_path / "album", Embedder(mean_color_bundle, threads=1)) as gallery:
        gallery.enroll(tmp_path / "a.jpg", SquareDetector())
        gallery.split([1], "Mia")
        export_xmp(gallery)
    ((name, box),) = regions_of_sidecar(tmp_path / "a.jpg.xmp", orientation)
    assert name == "Mia"
    assert tuple(box) == pytest.approx((0, 0, 0.5, 1), abs=0.01), "the left half of the upright photo"


@pytest.mark.shared_data
@pytest.mark.exhaustive
def test_cats_and_people_become_people(shared_data: Path):
    """Two cats and two people of the collections, at the distance that the page advises."""
    folders = ["cats23_gpriamo/*", "lfw_photos_devtest/*"]
    photos: dict[str, tuple[str, bytes]] = {}
    for pattern in folders:
        chosen = sorted((each for each in shared_data.glob(pattern) if each.is_dir()), key=lambda each: -count(each))
        for individual in chosen[:2]:
            for path in sorted(individual.iterdir())[:8]:
                photos[str(path)] = individual.name, path.read_bytes()
    with served("person-mobile", "pet-nano") as ask:
        double = ImmichDouble(ask, 0.3, photos={path: content for path, (_, content) in photos.items()})
        double.detect("missing")
        double.recognize("missing")
    result = judge(double, {path: name for path, (name, _) in photos.items()})
    assert result.individuals == 4
    assert result.recognized >= 3
    collections = [{"cats23" in face.photo for face in faces} for faces in double.people().values()]
    assert all(len(each) == 1 for each in collections), "no person is a cat"


def count(folder: Path) -> int:
    return len(list(folder.iterdir()))
