"""Folders of photos are listed once, without what systems and programs put there, which is counted."""

import logging
from collections import Counter
from pathlib import Path

import pytest

from familiar.core.errors import UnreadablePhoto
from familiar.photos.listing import describe_counts, find_photos


def put(root: Path, *names: str) -> list[Path]:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return [root / name for name in names]


def counted(root: Path, **options: object) -> tuple[list[str], dict[str, int]]:
    counts = Counter[str]()
    photos = find_photos([root], passed_over=counts, **options)
    return [str(photo.relative_to(root)) for photo in photos], dict(counts)


@pytest.mark.parametrize(
    "folder",
    [
        *("@eaDir", "#recycle", "$RECYCLE.BIN", "$Recycle.Bin", "lost+found", "__MACOSX", ".thumbnails", ".Trash-1000"),
        *("System Volume Information", ".AppleDouble", "#snapshot", ".dtrash", ".stfolder", ".stversions", "@Recycle"),
        *("@Recently-Snapshot", ".@__thumb", "RECYCLER", "FOUND.000", ".Trashes", ".fseventsd", "Lib Previews.lrdata"),
        *(".snapshots", ".zfs", ".picasaoriginals", "A.photoslibrary/resources", "Network Trash Folder"),
    ],
)
def test_system_folders_are_passed_over_at_every_level(folder: str, tmp_path: Path):
    put(tmp_path, "a.jpg", "2019/b.png")
    put(tmp_path, f"{folder}/1.jpg", f"2019/{folder}/1.jpg", f"2019/{folder}/deep/1.jpg", f"{folder}/1.txt")
    assert counted(tmp_path) == (["2019/b.png", "a.jpg"], {"in system folders": 3})


def test_hidden_folders_are_passed_over_and_counted(tmp_path: Path):
    put(tmp_path, "a.jpg", ".git/1.jpg", "b/.cache/c/2.jpg", ".b.jpg")
    assert counted(tmp_path) == (["a.jpg"], {"in hidden folders": 2, "hidden files": 1})


def test_named_folder_is_listed_whatever_it_is_called(tmp_path: Path):
    put(tmp_path, "@eaDir/1.jpg", ".photos/1.jpg")
    assert counted(tmp_path / "@eaDir") == (["1.jpg"], {})
    assert counted(tmp_path / ".photos") == (["1.jpg"], {})


def test_originals_in_a_library_of_apple_are_listed(tmp_path: Path):
    put(tmp_path, "A.photoslibrary/originals/0/1.heic", "A.photoslibrary/database/1.jpg")
    assert counted(tmp_path) == (["A.photoslibrary/originals/0/1.heic"], {"in system folders": 1})


def test_other_files_are_counted_by_kind(tmp_path: Path):
    suffixes = ("DNG", "CR2", "CR3", "NEF", "ARW", "ORF", "RW2", "RAF", "PEF", "SRW", "3fr", "iiq", "x3f", "nrw")
    raw = [f"1.{suffix}" for suffix in suffixes]
    videos = [f"1.{suffix}" for suffix in ("mp4", "MOV", "avi", "mkv", "m4v", "3gp", "mts", "webm")]
    put(tmp_path, "1.jpg", "1.jpg.xmp", "1.AAE", "1.jxl", "1.psd", "1.jp2", "1.txt", "Thumbs.db", *raw, *videos)
    (tmp_path / "gone").symlink_to("nowhere")
    assert counted(tmp_path) == (
        ["1.jpg"],
        {
            "raw files": 14,
            "videos": 8,
            "sidecars": 2,
            "JPEG XL files": 1,
            "pictures of other formats": 2,
            "files that are not photos": 2,
            "broken links": 1,
        },
    )


def test_links_to_folders_are_followed_once(tmp_path: Path):
    root, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    put(root, "z/1.jpg")
    put(elsewhere, "2.jpg", "deep/3.jpg")
    for name, target in (("a", root / "z"), ("b", elsewhere), ("c", elsewhere), ("up", tmp_path), ("loop", root)):
        (root / name).symlink_to(target)
    (elsewhere / "back").symlink_to(root)
    (elsewhere / "deep" / "self").symlink_to(elsewhere / "deep")
    (root / "deep").symlink_to(elsewhere / "deep")
    photos, counts = counted(root)
    assert photos == ["b/2.jpg", "b/deep/3.jpg", "z/1.jpg"]
    assert counts == {"links to folders listed already": 7}


def test_folder_of_links_only_is_listed(tmp_path: Path):
    (photo,) = put(tmp_path / "elsewhere", "1.jpg")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "link").symlink_to(photo.parent)
    assert counted(tmp_path / "photos") == (["link/1.jpg"], {})
    (tmp_path / "link").symlink_to(tmp_path / "photos")
    assert counted(tmp_path / "link") == (["link/1.jpg"], {})


@pytest.mark.parametrize(
    ("pattern", "remaining"),
    [
        ("*_edited.*", ["a/1.jpg", "a/b/2.jpg", "c/1.jpg"]),
        ("*_EDITED.JPG", ["a/1.jpg", "a/b/2.jpg", "c/1.jpg"]),
        ("a", ["c/1.jpg"]),
        ("a/", ["c/1.jpg"]),
        ("b", ["a/1.jpg", "a/1_edited.jpg", "c/1.jpg"]),
        ("a/b", ["a/1.jpg", "a/1_edited.jpg", "c/1.jpg"]),
        ("c/*.jpg", ["a/1.jpg", "a/1_edited.jpg", "a/b/2.jpg"]),
        ("[0-9].jpg", ["a/1_edited.jpg"]),
    ],
)
def test_excluded_files_and_folders_are_left_out(pattern: str, remaining: list[str], tmp_path: Path):
    put(tmp_path, "a/1.jpg", "a/1_edited.jpg", "a/b/2.jpg", "c/1.jpg")
    photos, counts = counted(tmp_path, exclude=[pattern])
    assert photos == remaining
    assert counts == {"excluded": 4 - len(remaining)}


def test_named_files_are_excluded_too(tmp_path: Path):
    first, second = put(tmp_path, "1.jpg", "2_edited.jpg")
    assert find_photos([first, second], exclude=["*_edited.*"], passed_over=(counts := Counter())) == [first]
    assert counts == {"excluded": 1}
    with pytest.raises(UnreadablePhoto, match=r"no photo found in .*1\.jpg \(passed over: 1 excluded\)$"):
        find_photos(first, exclude=["1.*"])


def test_says_what_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    put(tmp_path, "1.jpg", "@eaDir/1.jpg", "@eaDir/2.jpg", "1.dng")
    find_photos(tmp_path)
    assert caplog.record_tuples == [
        ("familiar.photos.listing", logging.WARNING, f"{tmp_path}: passed over 2 in system folders, 1 raw file")
    ]
    (tmp_path / "1.jpg").unlink()
    with pytest.raises(UnreadablePhoto, match=r"passed over: 2 in system folders, 1 raw file\)$"):
        find_photos(tmp_path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("JPEG XL files", "1 JPEG XL file"),
        ("files that are not photos", "1 file that is not a photo"),
        ("pictures of other formats", "1 picture of other formats"),
        ("links to folders listed already", "1 link to folders listed already"),
        ("broken links", "1 broken link"),
        ("hidden files", "1 hidden file"),
        ("videos", "1 video"),
        ("sidecars", "1 sidecar"),
        ("in hidden folders", "1 in hidden folders"),
    ],
)
def test_one_is_singular(kind: str, text: str):
    assert describe_counts(Counter({kind: 1})) == text
    assert describe_counts(Counter({kind: 1200})) == f"1,200 {kind}"
