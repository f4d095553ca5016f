"""What is forgotten leaves no byte in any file or answer of a running server, whatever was done with it before.

All that familiar writes is in watched folders: the gallery, HOME with its caches, and the folder of temporary files.
"""

import contextlib
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from familiar.cli.main import familiar
from familiar.client import Client
from familiar.gallery.search import folder_index
from familiar.gallery.store.photos import PhotoRow
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from familiar.integrations.milvus import open_index
from support.drawn_cats import draw_cats
from support.privacy_page import unlisted_files
from support.traces import files_with, forms_of_bytes, forms_of_text, forms_of_vector

pytestmark = pytest.mark.slow

NAME, EARLIER_NAME, MERGED_NAME = "Schnurrhilde <7>", "Mohrle Zwo", "Grauchen Vier"
CONTACT, NOTE = "+49 171 5550199", "hat Angst vor Besen"
NO_DETECTOR = ("--model", "pet-nano", "--detector", "none")
SLICE = 64  # bytes of a photo that are searched for


class Album:
    """An album of six cats, of which one is to be forgotten, in folders that are searched afterwards.

    Attributes:
        root: the current folder.
        written: all folders that familiar may write to.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.written = [root / name for name in ("album", "home", "temporary", "logs")]
        for folder in self.written[1:]:
            folder.mkdir()
        draw_cats(root / "drawn", cats=6, photos=4)
        for cat in range(6):
            (root / "photos" / f"of {cat}").mkdir(parents=True)
            for index in range(2):
                (root / "drawn" / f"cat-{cat}" / f"{index}.png").rename(root / "photos" / f"of {cat}" / f"{index}.png")
        (root / "photos" / "of 0").rename(root / "photos" / NAME)

    def run(self, *arguments: str) -> str:
        result = CliRunner().invoke(familiar, list(arguments))
        assert result.exit_code == 0, (arguments, result.output, result.exception)
        with (self.root / "logs" / "commands.txt").open("a") as log:
            log.write(result.output if arguments[1] == "forget" else "")  # other output is the user's to keep
        return result.output

    def photos_of_the_cat(self) -> list[PhotoRow]:
        with Store.open(self.root / "album") as gallery, gallery.read() as repository:
            return [row for row in repository.photos.rows() if NAME in row.path or "geheim" in row.path]

    def faces_of_the_cat(self) -> list[int]:
        with Store.open(self.root / "album") as gallery, gallery.read() as repository:
            numbers = ",".join(str(row.photo) for row in self.photos_of_the_cat())
            query = f"SELECT id FROM faces WHERE photo_id IN ({numbers}) ORDER BY id"
            return [face for (face,) in repository.connection.execute(query)]

    def vectors(self, faces: list[int]) -> dict[str, set[bytes]]:
        with Store.open(self.root / "album") as gallery:
            stored, centered = gallery.stored_faces(), gallery.faces()
            rows = stored.rows_of(np.array(faces))
            return {
                f"{kind} embedding of face {face}": forms_of_vector(vector)
                for kind, table in (("stored", stored), ("centered", centered))
                for face, vector in zip(faces, table.unit_rows(rows), strict=True)
            }


@pytest.fixture
def album(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Album:
    album = Album(tmp_path)
    for variable, folder in (("HOME", "home"), ("TMPDIR", "temporary"), ("SQLITE_TMPDIR", "temporary")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return album


@contextlib.contextmanager
def served(album: Album) -> Iterator[str]:
    """Run the server in a process of its own and provide its URL."""
    command = [sys.executable, "-m", "familiar", "serve", "album", *NO_DETECTOR, "--root", "photos", "--port", "0"]
    log = album.root / "logs" / "server.txt"
    with log.open("w") as output, subprocess.Popen(command, stderr=output) as server:
        try:
            while not (url := re.search(r"http://127\.0\.0\.1:\d+(?=/)", log.read_text())):
                assert server.poll() is None, log.read_text()
            yield url[0]
        finally:
            server.terminate()


def watch_until_enrolled(album: Album) -> None:
    """Watch the photos until one was reported. The event stays in the gallery, as its webhook does not answer."""
    command = [sys.executable, "-m", "familiar", "watch", "photos", "--gallery", "album", *NO_DETECTOR]
    command += ["--settle", "0.1", "--poll", "0.1", "--webhook", "http://127.0.0.1:9/"]
    with (
        (album.root / "watch.txt").open("w") as notes,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=notes, text=True) as watch,
    ):
        assert watch.stdout is not None
        for line in watch.stdout:
            if '"enrolled"' in line:
                break
        watch.terminate()


def answers(url: str, faces: list[int], photos: list[int], identity: int) -> Iterator[bytes]:
    """Request everything that a server shows of some faces and photos, and every page."""
    api = ["gallery", "identities", "names", "photos", "faces/unassigned", "decisions", "questions", "jobs"]
    paths = [f"/api/v1/{path}" for path in api] + ["/", "/album", "/individuals", "/questions", "/desk", "/search"]
    paths += [f"/api/v1/faces/{face}{end}" for face in faces for end in ("", "/image?side=160")]
    paths += [f"/api/v1/photos/{photo}{end}" for photo in photos for end in ("", "/image?side=256")]
    paths += [f"/photos/{photo}" for photo in photos]
    paths += [f"/individuals/{identity}", f"/desk/{identity}", f"/api/v1/identities/{identity}/faces"]
    for path in paths:
        try:
            with urllib.request.urlopen(url + path) as response:
                assert "no-store" in response.headers["Cache-Control"], path
                yield response.read()
        except urllib.error.HTTPError as error:
            yield error.read()


def slices(path: Path | bytes) -> set[bytes]:
    content = path if isinstance(path, bytes) else path.read_bytes()
    return forms_of_bytes(content[len(content) // 2 : len(content) // 2 + SLICE])


@pytest.mark.parametrize("index", ["hnsw", pytest.param("milvus", marks=pytest.mark.exhaustive)])
def test_forgotten_cat_leaves_no_trace(album: Album, index: str, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip({"hnsw": "usearch", "milvus": "pymilvus"}[index])
    monkeypatch.setattr(folder_index, "INDEX_FROM", 1)
    drawn, folder = album.root / "drawn" / "cat-0", album.root / "album"
    album.run("gallery", "enroll", "album", "photos", *NO_DETECTOR)
    album.run("gallery", "split", "album", *map(str, album.faces_of_the_cat()), "--name", EARLIER_NAME)
    album.run("gallery", "repair", "album")  # which keeps a copy
    album.run("gallery", "cluster", "album")
    album.run("gallery", "name", "album", EARLIER_NAME, NAME)
    if index == "milvus":
        album.run("gallery", "index", "album", "--index", "milvus:album/index.db")

    new_photo = album.root / "photos" / NAME / "new.png"
    drawn.joinpath("2.png").rename(new_photo)
    watch_until_enrolled(album)
    upload = drawn.joinpath("3.png").rename(album.root / "geheim.png")
    with served(album) as url, Client(url) as client:
        *_, progress = client.watch(client.enroll([upload]))
        assert progress.state == "done", progress
        client.search_photo(upload)
        faces, photos = album.faces_of_the_cat(), album.photos_of_the_cat()
        assert len(faces) == len(photos) == 4
        client.split([faces[-1]], MERGED_NAME)
        (identity,) = (each.identity for each in client.identities() if each.name == NAME)
        client.merge(identity, [next(each.identity for each in client.identities() if each.name == MERGED_NAME)])
        client.move(faces, identity)
        client.confirm(faces)
        register = f"name,status,species,contact,note\n{NAME},lost,cat,{CONTACT},{NOTE}\n"
        (album.root / "pets.csv").write_text(register)
        album.run("gallery", "register", "album", "pets.csv")
        album.run("gallery", "register", "album", "pets.csv")
        vectors = {f"earlier {name}": forms for name, forms in album.vectors(faces).items()}
        client.set_face_box(faces[0], (2.0, 2.0, 100.0, 100.0))
        with Store.open(folder) as gallery, gallery.write() as repository:  # a migration half done
            repository.migration.begin(gallery.space)
            other = np.random.default_rng(0).normal(size=gallery.space.embedding_dim)
            unit = (other / np.linalg.norm(other)).astype(np.float32)
            for face in faces:
                repository.connection.execute(
                    "INSERT INTO next_embeddings VALUES (?, 'photo', ?)", (face, unit.astype("<f2").tobytes())
                )
        album.run("gallery", "index", "album")
        part = next((folder / "photos").rglob("*.png")).parent / ".familiar.0123456789abcdef"
        part.write_bytes(upload.read_bytes()[:-100])  # as a server that was killed leaves it
        thumbnails = [client.face_image(face) for face in faces] + [client.photo_image(row.photo) for row in photos]

        names = {text: forms_of_text(text) for text in (NAME, EARLIER_NAME, MERGED_NAME, CONTACT, NOTE)}
        secrets = names | vectors | album.vectors(faces) | {"next embedding": forms_of_vector(unit)}
        secrets |= {f"photo {path}": slices(path) for path in (new_photo, upload)}
        secrets |= {f"path {row.path}": forms_of_text(row.path) for row in photos}
        secrets |= {f"content of {row.path}": forms_of_bytes(row.sha256) for row in photos}
        secrets |= {f"thumbnail {number}": slices(image) for number, image in enumerate(thumbnails)}
        assert [path for path in unlisted_files(folder, "The gallery's folder") if "index.db" not in path] == []
        planted = {name for name, _ in files_with(album.written, secrets)}
        assert planted >= {*names, "next embedding", f"photo {upload}"}
        assert {f"path {row.path}" for row in photos} <= planted
        assert {f"stored embedding of face {face}" for face in faces} <= planted
        photo_numbers = [row.photo for row in photos]
        shown = list(answers(url, faces, photo_numbers, identity))
        for name in (NAME, CONTACT, f"path {photos[0].path}", "thumbnail 0"):
            assert any(form in answer for form in secrets[name] for answer in shown), name

        album.run("gallery", "forget", "album", "--identity", NAME, "--yes")
        without_paths = {name: forms for name, forms in secrets.items() if name in names or "embedding" in name}
        remaining = {name for name, _ in files_with(album.written, without_paths)}
        assert remaining == {NAME}  # in the paths of photos
        photo_options = [word for row in photos for word in ("--photo", row.path)]
        album.run("gallery", "forget", "album", *photo_options, "--yes")
        assert files_with(album.written, secrets) == set()
        for answer in answers(url, faces, photo_numbers, identity):
            assert not [name for name, forms in secrets.items() if any(form in answer for form in forms)]
    assert files_with(album.written, secrets) == set()
    assert [path for path in unlisted_files(folder, "The gallery's folder") if "index.db" not in path] == []
    assert unlisted_files(album.root / "home", "On the same machine, elsewhere") == []
    with Store.open(folder, open_index) as gallery:
        assert check(gallery).problems == ()
        assert len(gallery.faces().ids) == 10
    assert list(folder.glob("damaged-*")) == []
    assert new_photo.exists()  # the user's own file
