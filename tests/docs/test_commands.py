"""The commands of the pages run, those of a page in their order, on drawn cats.

Trainings are cut to one epoch of small crops, and a server is stopped once it has answered.
"""

import hashlib
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from familiar.cli.main import familiar
from familiar.conversion.presets import PRESETS
from familiar.core.download import PublishedFile
from familiar.core.published_files import PUBLISHED_FILES
from familiar.core.types import Face, Photo
from familiar.detection.detectors import DETECTORS, DetectorSpec, WholePhoto
from familiar.embedding.bundle import resolve_model
from support.drawn_cats import draw_cats
from support.foreign_network import Network
from support.started_commands import first_event, served_page

ROOT = Path(__file__).parents[2]
PAGES = {  # page: how many of its commands are run
    "README.md": 10,
    "docs/index.md": 2,
    "docs/explanation/export.md": 5,
    "docs/explanation/nano.md": 4,
    "docs/explanation/people.md": 3,
    "docs/how-to/back-up-an-album.md": 6,
    "docs/how-to/cat-flap.md": 4,
    "docs/how-to/choose-a-model.md": 10,
    "docs/how-to/coming-from-other-libraries.md": 4,
    "docs/how-to/deploy.md": 1,
    "docs/how-to/embed-on-several-machines.md": 4,
    "docs/how-to/evaluate-honestly.md": 3,
    "docs/how-to/find-a-lost-pet.md": 11,
    "docs/how-to/immich.md": 5,
    "docs/how-to/my-first-album.md": 6,
    "docs/how-to/names-in-photos.md": 8,
    "docs/how-to/search-with-milvus.md": 5,
    "docs/how-to/serve.md": 5,
    "docs/how-to/several-species.md": 8,
    "docs/how-to/sort-an-album.md": 8,
    "docs/how-to/tables-of-photos.md": 3,
    "docs/how-to/train-on-my-photos.md": 10,
    "docs/how-to/train-on-several-machines.md": 2,
    "docs/how-to/watch-a-folder.md": 3,
    "docs/reference/recipes.md": 3,
}
# The settings on a page come later, and win.
SMALL = ("model.initial_weights=none", "input.size_px=32", "input.resize_px=32", "sampler.batch_size=16")
GROUPS = ("sampler.identities=6", "sampler.photos=2")
CATS = 20


class People:
    """A detector that takes each photo whole for the face of a person."""

    def detect(self, photo: Photo) -> list[Face]:
        return [replace(face, label="person") for face in WholePhoto().detect(photo)]


def commands(page: str) -> list[str]:
    """Return the `familiar` lines of a page's console blocks, continued lines joined."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    lines = (line for block in blocks for line in re.sub(r"\\\n *", "", block).splitlines())
    elsewhere = ("familiar quickstart",)  # tests/cli/test_quickstart.py
    return [line for line in lines if line.startswith("familiar ") and line not in elsewhere]


def run(line: str) -> str:
    """Run a command in the current folder and return what it printed."""
    _, *arguments = shlex.split(line, comments=True)
    if arguments[0] == "train":
        small = [*SMALL, *(GROUPS if "facenet" in line or "semi_hard" in line else ())]
        small += [] if "--recipe" in arguments else ["model.name=mobilenetv3_small_050"]
        arguments[1:1] = [word for setting in small for word in ("--set", setting)]
        arguments += ["--set", "budget.epochs=1"]
    if arguments[0] == "export" and arguments[1].startswith("runs/"):  # one epoch loses more
        arguments += ["--max-auc-drop", "1", "--max-recall-drop", "1"]
    if arguments[0] == "verify" and "person-nano" in arguments:  # the drawn cats are no people
        arguments += ["--detector", "none"]
    if arguments[0] == "serve" or "--interactive" in arguments:
        return served_page(arguments)
    if arguments[0] == "watch":
        return first_event([argument for argument in arguments if argument not in (">", "events.jsonl")])
    result = CliRunner().invoke(familiar, arguments)
    assert result.exit_code == 0, (line, result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs that pages assume: `mine` by the default recipe, `nano` by pet-nano."""
    folder = tmp_path_factory.mktemp("runs")
    draw_cats(folder / "photos", cats=CATS, photos=4)
    before = Path.cwd()
    os.chdir(folder)
    try:
        # A comparison of two models needs ten identities in the test split.
        run("familiar train photos --output runs/mine --set split.test=0.5")
        run("familiar train photos --output runs/nano --recipe pet-nano")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Path) -> Path:
    """The photos that pages assume, in the current folder."""
    shutil.copytree(runs / "photos", tmp_path / "photos")
    draw_cats(tmp_path / "new-photos", cats=12, photos=2)
    draw_cats(tmp_path / "lost", cats=3, photos=4)
    (tmp_path / "lost" / "cat-0").rename(tmp_path / "lost" / "Luna, Elm Street 4")
    draw_cats(tmp_path / "found-photos", cats=1, photos=2)
    shutil.move(tmp_path / "lost" / "Luna, Elm Street 4" / "3.png", tmp_path / "found.jpg")
    (tmp_path / "pets.csv").write_text('name,species,place\n"Luna, Elm Street 4",cat,Elm Street 4\n')
    for name in ("a.jpg", "b.jpg", "new.jpg", "luna.jpg"):
        shutil.copy(tmp_path / "found.jpg", tmp_path / name)
    rows = [f"photos/cat-{cat}/{photo}.png,cat-{cat}" for cat in range(CATS) for photo in range(4)]
    (tmp_path / "cats.csv").write_text("\n".join(["path,identity", *rows]))
    facts = [f"cat-{cat},{'day' if cat % 2 else 'night'}" for cat in range(CATS)]
    (tmp_path / "facts.csv").write_text("\n".join(["identity,light", *facts]))
    shutil.copytree(tmp_path / "lost", tmp_path / "people")
    shutil.copytree(tmp_path / "found-photos", tmp_path / "unknown")
    shutil.copy(resolve_model("pet-nano"), tmp_path / "sface.onnx")  # in the place of a network for people
    (tmp_path / "Pictures").mkdir()
    (tmp_path / "album-token.txt").write_text("a token of enough characters\n")
    (tmp_path / "secret.txt").write_text("of a webhook, in hex\n")
    (tmp_path / "mqtt.txt").write_text("ada:secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_photos.py").write_text("def sharpen(rgb, generator):\n    return rgb")
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which --augment adds the current folder
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", PAGES)
def test_commands_run(page: str, folder: Path, runs: Path):
    lines = commands(page)
    assert len(lines) == PAGES[page]
    # A page that does not make them takes them as given.
    for name in ("mine", "nano"):
        if not any(line.startswith("familiar train") and f"runs/{name}" in line.split() for line in lines):
            shutil.copytree(runs / "runs" / name, folder / "runs" / name)
    if "old.onnx" in " ".join(lines):
        shutil.copy(runs / "runs" / "mine" / "model.onnx", folder / "old.onnx")
    if page.endswith(("serve.md", "deploy.md", "back-up-an-album.md", "my-first-album.md")):
        run("familiar gallery enroll album photos --model pet-nano")
    if page.endswith("my-first-album.md"):
        run("familiar gallery cluster album")
        run("familiar gallery name album '#1' Mia")
    printed = {line: run(line) for line in lines}
    for line, output in printed.items():
        if line.startswith("familiar serve"):
            assert ("familiar for Immich" if "--immich" in line else "<html") in output
        elif line.startswith("familiar match found.jpg") and "--save" not in line and "--not" not in line:
            assert "Luna, Elm Street 4" in output
        else:
            assert output, line


@pytest.fixture
def published(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """Small stand-ins for the published networks, on a server of this machine; YuNet's takes photos whole."""
    folder = tmp_path_factory.mktemp("mirror")
    monkeypatch.setenv("FAMILIAR_MODELS", str(folder / "downloaded"))
    files = {name: folder / file.name for name, file in PUBLISHED_FILES.items()}
    Network(initializers_as_inputs=True).save(files["sface"])
    files["yunet"].write_bytes(b"a detector")
    monkeypatch.setitem(DETECTORS, "yunet", DetectorSpec("stand-in", WholePhoto))
    monkeypatch.setitem(DETECTORS, "auto", DetectorSpec("stand-in", People))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        for name, path in files.items():
            content = path.read_bytes()
            file = PublishedFile(
                f"http://127.0.0.1:{server.server_port}/{path.name}",
                hashlib.sha256(content).hexdigest(),
                len(content),
                PUBLISHED_FILES[name].license,
            )
            monkeypatch.setitem(PUBLISHED_FILES, name, file)
            if name in PRESETS:
                monkeypatch.setitem(PRESETS, name, replace(PRESETS[name], sha256=(file.sha256,)))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield files
        server.shutdown()
        thread.join()


@pytest.mark.exhaustive
def test_commands_for_imported_networks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: dict[str, Path]
):
    """With small files in place of the published ones, and without searching the drawn cats for people's faces."""
    monkeypatch.chdir(tmp_path)
    draw_cats(tmp_path / "photos", cats=12, photos=5)
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(tmp_path / "photos" / "cat-0" / "0.png", tmp_path / name)
    Network().save(tmp_path / "own.onnx")
    lines = commands("docs/how-to/import-a-network.md")
    assert len(lines) == 10
    printed = [run(line) for line in lines]
    assert "not calibrated" in printed[2]
    assert "60 new photos with 60 faces" in printed[4]
    assert "probability" in printed[6]
    assert published["sface"].read_bytes() == (tmp_path / "face_recognition_sface_2021dec.onnx").read_bytes()


def test_every_page_with_commands_is_run():
    # Models of a hub are tested against one on this machine: tests/test_hub.py.
    elsewhere = {"docs/how-to/import-a-network.md", "docs/how-to/models-by-name.md"}
    pages = {"README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))}
    # Reproductions train for minutes to hours on photos that are not part of the repository: benchmarks/reproduce.py.
    pages = {page for page in pages if not page.startswith("docs/reproductions/") and commands(page)}
    assert pages == PAGES.keys() | elsewhere
