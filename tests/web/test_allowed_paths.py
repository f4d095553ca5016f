"""Paths of a client, and links, cannot lead out of the roots."""

import os
from http import HTTPStatus
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from familiar.core.errors import FamiliarError
from familiar.gallery import Gallery
from familiar.gallery.store.store import Store
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.errors import HttpProblem
from support import color_album, small_gallery


@pytest.fixture
def root_folder(tmp_path: Path) -> Path:
    """A root at photos/ with links in it; photos2/ and secret/ are outside."""
    for folder in ("photos/2019/Paris", "photos/\u0641\u0627\u0631\u0633\u06cc\u200c", "photos2", "secret"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("photos/mia.jpg", "photos/100%25.jpg", "photos2/mia.jpg", "secret/key.jpg"):
        (tmp_path / file).write_bytes(b"")
    for link, to in (
        ("photos/out", "../secret"),
        ("photos/out.jpg", str(tmp_path / "secret" / "key.jpg")),
        ("photos/in.jpg", "mia.jpg"),
        ("photos/in", "2019"),
        ("photos/a loop", "a loop"),
        ("photos/one", "two"),
        ("photos/two", "one"),
        ("photos/there and back", "../secret/../photos/2019"),
        ("photos linked", "photos"),
    ):
        (tmp_path / link).symlink_to(to)
    return tmp_path


@pytest.fixture
def roots(root_folder: Path) -> AllowedPaths:
    return AllowedPaths((root_folder / "photos",), root_folder / "album" / "photos")


def attacks(root_folder: Path) -> dict[str, str]:
    return {
        "empty": "",
        "parent": "..",
        "sibling": "../photos2/mia.jpg",
        "in and out": "2019/../../secret/key.jpg",
        "within, by way of the parent": "2019/../mia.jpg",
        "absolute": "/etc/passwd",
        "absolute, beside": str(root_folder / "secret" / "key.jpg"),
        "absolute, parent": str(root_folder / "photos" / ".." / "secret" / "key.jpg"),
        "the root's own parent": str(root_folder),
        "a name that begins as the root's": str(root_folder / "photos2" / "mia.jpg"),
        "encoded dots": "%2e%2e/secret/key.jpg",
        "encoded slash": "..%2fsecret%2fkey.jpg",
        "encoded slash alone": "2019%2fParis",
        "encoded twice": "%252e%252e%252fsecret",
        "encoded in halves": ".%2e/secret",
        "encoded for ever": "%" + "25" * 20 + "2e/secret",
        "encoded backslash": "..%5csecret",
        "encoded zero byte": "mia.jpg%00.png",
        "home": "~",
        "somebody's home": "~root/x",
        "zero byte": "mia.jpg\0",
        "new line": "mia.jpg\n",
        "tab": "mia\t.jpg",
        "turned around": "mia\u202egpj.exe",
        "no UTF-8": "mia\udcff.jpg",
        "drive": "C:\\Windows\\win.ini",
        "drive with slashes": "C:/Windows/win.ini",
        "drive alone": "c:",
        "another machine": "\\\\server\\share",
        "another machine with slashes": "//server/share",
        "two slashes": f"/{root_folder}/photos/mia.jpg",
        "a backslash": "2019\\Paris",
        "a device path": "\\\\.\\PhysicalDrive0",
        "a device": "CON",
        "a device with a suffix": "2019/nul.jpg",
        "a port": "COM1.txt",
        "a port in superscript": "com\u00b9",
        "a device and spaces": "aux  .jpg",
        "trailing dot": "mia.jpg.",
        "trailing space": "mia.jpg ",
        "three dots": "2019/.../Paris",
        "dots and a space": "2019/.. /secret",
        "link to outside": "out/key.jpg",
        "link to a file outside": "out.jpg",
        "link to outside, itself": "out",
        "full-width dots": "\uff0e\uff0e/secret",
        "one-dot leaders": "\u2024\u2024/secret",
        "two-dot leader": "\u2025/secret",
        "full-width slash": "2019\uff0fParis",
        "full-width backslash": "2019\uff3cParis",
        "long": "a/" * 3000,
        "long dots": "2019/.." * 2000,
    }


@pytest.mark.slow
@pytest.mark.parametrize("attack", attacks(Path("/")))
def test_rejects_path_attacks(attack: str, root_folder: Path, roots: AllowedPaths):
    text = attacks(root_folder)[attack]
    with pytest.raises(HttpProblem) as error:
        roots.resolve_user_path(text)
    assert error.value.status in (
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
    )  # nothing is decoded: such files are missing
    assert error.value.status == HTTPStatus.FORBIDDEN or ".." not in text.split("/")
    message = str(error.value)
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize("loop", ["a loop", "one", "two", "a loop/mia.jpg"])
def test_rejects_link_loop_as_not_found(loop: str, roots: AllowedPaths):
    with pytest.raises(HttpProblem) as error:
        roots.resolve_user_path(loop)
    assert error.value.status == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".", "photos"),
        ("./2019", "photos/2019"),
        ("2019/Paris/", "photos/2019/Paris"),
        ("2019//Paris", "photos/2019/Paris"),
        ("mia.jpg", "photos/mia.jpg"),
        ("100%25.jpg", "photos/100%25.jpg"),
        ("in.jpg", "photos/mia.jpg"),
        ("in/Paris", "photos/2019/Paris"),
        ("there and back", "photos/2019"),
        ("\u0641\u0627\u0631\u0633\u06cc\u200c", "photos/\u0641\u0627\u0631\u0633\u06cc\u200c"),
    ],
)
def test_resolves_paths_inside_root(text: str, expected: str, root_folder: Path, roots: AllowedPaths):
    assert roots.resolve_user_path(text) == root_folder / expected
    assert roots.resolve_user_path(str(root_folder / "photos" / text)) == root_folder / expected


def test_rejects_missing_path_as_not_found(root_folder: Path, roots: AllowedPaths):
    for text in ("2020", str(root_folder / "photos" / "2020"), "x" * 300):
        with pytest.raises(HttpProblem, match="no such file or folder") as error:
            roots.resolve_user_path(text)
        assert error.value.status == HTTPStatus.NOT_FOUND


def test_uses_first_root_that_contains_path(root_folder: Path):
    (root_folder / "photos2" / "only here").mkdir()
    roots = AllowedPaths((root_folder / "photos", root_folder / "photos2"), root_folder / "secret")
    assert roots.resolve_user_path("mia.jpg") == root_folder / "photos" / "mia.jpg"
    assert roots.resolve_user_path("only here") == root_folder / "photos2" / "only here"
    assert roots.resolve_user_path("key.jpg") == root_folder / "secret" / "key.jpg"  # the gallery's own, last


def test_resolve_accepts_photo_paths_only_within_roots(root_folder: Path, roots: AllowedPaths):
    assert roots.resolve(root_folder / "photos" / "in" / "Paris") == root_folder / "photos" / "2019" / "Paris"
    assert roots.resolve(root_folder / "album" / "photos" / "ab.jpg") == root_folder / "album" / "photos" / "ab.jpg"
    for outside in (
        "photos/out/key.jpg",
        "photos/out.jpg",
        "photos2/mia.jpg",
        "photos/../secret/key.jpg",
        "album/gallery.sqlite",
        "",
    ):
        with pytest.raises(HttpProblem) as error:
            roots.resolve(root_folder / outside)
        assert error.value.kind == "outside-roots"
    with pytest.raises(HttpProblem):
        roots.resolve(root_folder / "photos" / "mia\0.jpg")


PARTS = ("..", ".", "", "photos", "2019", "out", "in", "one", "~", "%2e%2e", "%2f", "C:", "secret", "mia.jpg")
PARTS += ("key.jpg", "\uff0e\uff0e", "\0", " ", "\\", "/etc", "there and back", "\u200c", "a loop")


@pytest.mark.slow
@given(
    text=st.one_of(
        st.text(max_size=40),
        st.lists(
            st.sampled_from(PARTS),
            max_size=8,
        ).map("/".join),
    ),
    absolute=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_accepted_path_lies_inside_roots(text: str, absolute: bool, root_folder: Path, roots: AllowedPaths):
    if absolute:
        text = f"{root_folder}/{text}"
    try:
        named = roots.resolve_user_path(text)
    except HttpProblem:
        return
    assert any(root == named or root in named.parents for root in (*roots.folders, roots.uploads))
    assert Path(os.path.realpath(named)) == named
    assert ".." not in text.split("/")


# --- which they are ----------------------------------------------------------------------------------------------


def test_default_roots_are_topmost_photo_folders(tmp_path: Path, mean_color_bundle: Path):
    paths = [
        *color_album.draw_album(tmp_path / "b", red=1),
        *color_album.draw_album(tmp_path / "a" / "2019" / "May", green=1),
        *color_album.draw_album(tmp_path / "a" / "2019", blue=1),
        *color_album.draw_album(tmp_path / "a-b" / "c", red=2),
    ]
    with color_album.create_gallery(tmp_path / "album", mean_color_bundle, paths) as gallery:
        roots = AllowedPaths.for_gallery(Gallery(gallery), ())
    assert {*roots.folders} == {tmp_path / "b", tmp_path / "a" / "2019", tmp_path / "a-b" / "c"}
    assert roots.uploads == tmp_path / "album" / "photos"


def test_imported_or_top_level_photos_add_no_root(tmp_path: Path):
    with Store.create(tmp_path, small_gallery.SPACE) as gallery:
        small_gallery.enroll_vectors(gallery, small_gallery.draw_individuals([2]))
        small_gallery.enroll_vectors(gallery, small_gallery.draw_individuals([1], seed=1), "/mia")
        assert AllowedPaths.for_gallery(Gallery(gallery), ()).folders == ()


def test_configured_roots_replace_default_roots(root_folder: Path, mean_color_bundle: Path):
    paths = color_album.draw_album(root_folder / "elsewhere", red=1)
    with color_album.create_gallery(root_folder / "album", mean_color_bundle, paths) as gallery:
        configured = [root_folder / "photos linked", root_folder / "photos" / "2019", root_folder / "photos2"]
        roots = AllowedPaths.for_gallery(Gallery(gallery), configured)
        assert roots.folders == (
            root_folder / "photos",
            root_folder / "photos2",
        )  # a root that is a link is where it leads
        assert roots.resolve(root_folder / "photos linked" / "mia.jpg") == root_folder / "photos" / "mia.jpg"
        for nothing in (root_folder / "nothing", root_folder / "photos" / "mia.jpg"):
            with pytest.raises(FamiliarError, match="no such folder"):
                AllowedPaths.for_gallery(Gallery(gallery), [nothing])
