import os
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from familiar.core.errors import BadDataset
from familiar.datasets.folders import (
    DataSpec,
    IdentityTable,
    open_photo,
    read_identity_list,
    scan_folders,
    sort_by_hash,
)
from familiar.datasets.spellings import unify_identity
from familiar.datasets.synthetic import SyntheticPhoto, SyntheticSource

NOT_UTF8 = os.fsdecode(b"Jos\xe9")
ODD_NAMES = [
    "a b",
    " lead and trail ",
    "it's",
    'quo"ted',
    "two\nlines",
    "tab\tbed",
    "🐈‍⬛",
    "قطة",
    "-r",
    "a\\b",
    "%s{}",
]


def put(path: Path, content: bytes = b"never decoded here") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def fill(root: Path, photos: Mapping[str, Iterable[str]]) -> Path:
    """A folder of identities."""
    for name, files in photos.items():
        for file in files:
            put(root / name / file)
    return root


def numbered(count: int, photos: int = 1) -> dict[str, list[str]]:
    return {f"pet{number}": [f"{photo}.jpg" for photo in range(photos)] for number in range(count)}


def listed(table: IdentityTable) -> list[tuple[str, str]]:
    """List (identity, file name) of each row."""
    return [(table.names[label], photo.name) for photo, label in zip(table.photos, table.labels, strict=True)]


def read(*sources: Path | str, **limits: object) -> IdentityTable:
    return DataSpec(tuple(map(str, sources)), **limits).read()


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    return fill(tmp_path / "cats", {"Tom": ["1.jpg", "2.PNG"], "Mia": ["1.webp"], "Zoe": ["9.jpeg", "10.jpeg"]})


# Scanning


def test_folders_become_sorted_identities(cats: Path) -> None:
    table = scan_folders(cats)
    assert table.names == ("cats/Mia", "cats/Tom", "cats/Zoe")
    assert table.photos == tuple(
        cats / name for name in ("Mia/1.webp", "Tom/1.jpg", "Tom/2.PNG", "Zoe/10.jpeg", "Zoe/9.jpeg")
    )
    assert table.labels.tolist() == [0, 1, 1, 2, 2]
    assert table.photos_per_identity.tolist() == [1, 2, 2]
    assert len(table) == 5
    assert table.ignored == {}


@pytest.mark.parametrize("backwards", [False, True])
def test_scan_is_invariant_to_file_system_order(cats: Path, backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = scan_folders(cats)
    scandir = os.scandir

    class Entries(list[os.DirEntry[str]]):
        """In the place of what `os.scandir` returns."""

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

    monkeypatch.setattr(
        os, "scandir", lambda folder: Entries(sorted(scandir(folder), key=lambda e: e.name, reverse=backwards))
    )
    table = scan_folders(cats)
    assert listed(table) == listed(expected)
    assert table.fingerprint == expected.fingerprint


def test_counts_ignored_files(cats: Path) -> None:
    expected = listed(scan_folders(cats))
    put(cats / ".DS_Store")
    put(cats / ".cache" / "1.jpg")
    put(cats / "Tom" / "._1.jpg")
    put(cats / "loose.jpg")
    put(cats / "readme.txt")
    put(cats / "Tom" / "notes.txt")
    put(cats / "Tom" / "no_suffix")
    put(cats / "Tom" / "more" / "3.jpg")
    put(cats / "Tom" / "folder.jpg" / "3.jpg")
    (cats / "empty").mkdir()
    put(cats / "only_text" / "a.txt")
    put(cats / "Tom" / "a.DNG")
    put(cats / "b.mp4")
    put(cats / "@eaDir" / "Tom" / "SYNOPHOTO_THUMB.jpg")
    put(cats / "Zoe" / "@eaDir" / "1.jpg" / "thumb.jpg")
    put(cats / "#recycle" / "1.jpg")
    (cats / "Tom" / "gone.jpg").symlink_to("nowhere.jpg")
    (cats / "circle").symlink_to("circle")
    table = scan_folders(cats)
    assert listed(table) == expected
    assert table.ignored == {
        "hidden files": 2,
        "in hidden folders": 1,
        "in system folders": 3,
        "raw files": 1,
        "videos": 1,
        "files outside an identity's folder": 2,
        "files that are not photos": 3,
        "folders within an identity's folder": 2,
        "identities without a photo": 2,
        "broken links": 2,
    }


def test_follows_links_once(cats: Path, tmp_path: Path) -> None:
    expected = listed(scan_folders(cats))
    elsewhere = put(tmp_path / "elsewhere" / "1.jpg")
    links = {"linked": elsewhere.parent, "again": elsewhere.parent, "A": cats / "Tom", "up": tmp_path, "loop": cats}
    for name, target in links.items():
        (cats / name).symlink_to(target)
    (cats / "Tom" / "other.jpg").symlink_to(elsewhere)
    table = scan_folders(cats)
    assert listed(table) == sorted([*expected, ("cats/Tom", "other.jpg"), ("cats/again", "1.jpg")])
    assert table.ignored == {"links to folders listed already": 4}


def test_folder_of_links_only_is_read(tmp_path: Path) -> None:
    photos = fill(tmp_path / "elsewhere", {"Mia": ["1.jpg"], "Tom": ["1.jpg", "2.jpg"]})
    (tmp_path / "cats").mkdir()
    for name in ("Mia", "Tom"):
        (tmp_path / "cats" / name).symlink_to(photos / name)
    table = scan_folders(tmp_path / "cats")
    assert (table.names, len(table)) == (("cats/Mia", "cats/Tom"), 3)


@pytest.mark.parametrize(
    "name",
    [
        *("@eaDir", "#recycle", "$RECYCLE.BIN", "lost+found", "__MACOSX", ".hidden", ".thumbnails", ".Trash-1000"),
        *("#snapshot", "System Volume Information", ".AppleDouble", ".dtrash", ".stfolder", "@Recycle", "A.lrdata"),
    ],
)
def test_system_folder_is_no_identity(name: str, cats: Path) -> None:
    expected = listed(scan_folders(cats))
    fill(cats / name, {"": ["1.jpg", "2.jpg"], "Mia": ["1.jpg"]})
    table = scan_folders(cats)
    assert listed(table) == expected
    assert list(table.ignored.values()) == [3]


def test_says_what_was_left_out_of_a_folder_without_photos(tmp_path: Path) -> None:
    fill(tmp_path / "cats", {"Tom": ["1.CR2", "2.NEF"], "Mia": ["1.mov"], "@eaDir": ["1.jpg"]})
    message = r"left out: 2 raw files, 1 in system folders, 1 video\. Expected"
    with pytest.raises(BadDataset, match=message):
        scan_folders(tmp_path / "cats")


def test_excluded_files_and_folders_are_not_read(cats: Path) -> None:
    expected = listed(scan_folders(cats))
    fill(cats, {"Tom": ["9_edited.jpg", "9_EDITED.png"], "Rejected": ["1.jpg", "2.jpg"]})
    fill(cats, {"Zoe": ["8.jpg"]})
    spec = DataSpec((str(cats),), exclude=("*_edited.*", "rejected/", "Zoe/8.jpg"))
    table = spec.read()
    assert listed(table) == expected
    assert table.ignored == {"excluded": 5}


def test_follows_links_within_root_and_linked_root(cats: Path, tmp_path: Path) -> None:
    (cats / "Tom" / "3.jpg").symlink_to("1.jpg")
    (tmp_path / "link").symlink_to(cats)
    table = scan_folders(tmp_path / "link")
    assert ("cats/Tom", "3.jpg") in listed(table)
    assert table.ignored == {}


def test_roots_are_merged_in_any_order(cats: Path, tmp_path: Path) -> None:
    dogs = fill(tmp_path / "dogs", {"Mia": ["1.jpg"]})
    table = scan_folders(dogs, cats)
    assert table.names == ("cats/Mia", "cats/Tom", "cats/Zoe", "dogs/Mia")
    assert listed(table) == listed(scan_folders(cats, dogs))
    assert table.fingerprint == scan_folders(cats, dogs).fingerprint


@pytest.mark.parametrize("name", [*ODD_NAMES, NOT_UTF8])
def test_accepts_odd_names(name: str, tmp_path: Path) -> None:
    root = fill(tmp_path / name, {name: [f"{name}.jpg", f"{name}2.jpg"], "other": ["1.jpg"]})
    table = read(root, max_identities=2, max_photos=1, identities=(name, "other"))
    assert f"{unify_identity(name)}/{unify_identity(name)}" in table.names
    assert len(table) == 2
    assert all(photo.exists() for photo in table.photos if isinstance(photo, Path))
    assert len(table.fingerprint) == 64


def test_folders_that_look_the_same_are_one_identity_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    composed, decomposed = "Jos\u00e9", "Jose\u0301"
    root = fill(tmp_path / decomposed, {composed: ["1.jpg", "3.jpg"], decomposed: ["1.jpg", "2.jpg"], "Mia": ["1.jpg"]})
    table = read(root, identities=(f"{decomposed}\u200e",))
    assert listed(table) == [(f"{composed}/{composed}", f"{number}.jpg") for number in (1, 1, 2, 3)]
    assert all(photo.exists() for photo in table.photos if isinstance(photo, Path))
    assert r"'Jose\u0301' and 'Jos\xe9'" in caplog.text
    assert len(read(root, max_photos=3).select_identities([f"{decomposed}/{decomposed}"])) == 3
    other = fill(tmp_path / "other" / composed, {"Mia": ["1.jpg"]})
    with pytest.raises(BadDataset, match="two of the sources are named"):
        read(root, other)
    assert read(root, tmp_path / "other", leave_out=("other",)).names == (*table.names, f"{composed}/Mia")


def test_folder_without_any_visible_character_keeps_its_name(tmp_path: Path) -> None:
    assert read(fill(tmp_path / "cats", {"\u3000": ["1.jpg"]})).names == ("cats/\u3000",)


# Invalid sources


def test_rejects_no_source() -> None:
    with pytest.raises(BadDataset, match="no data given"):
        read()


@pytest.mark.parametrize(
    ("kind", "message"), [("missing", "no such folder"), ("file", "is not a folder"), ("circle", "no such folder")]
)
def test_rejects_source_that_is_not_a_folder(kind: str, message: str, cats: Path, tmp_path: Path) -> None:
    source = tmp_path / kind
    if kind == "file":
        put(source)
    if kind == "circle":
        source.symlink_to(source)
    with pytest.raises(BadDataset, match=f"{kind}: {message}; name a folder that contains one folder per identity"):
        read(cats, source)


def test_rejects_empty_name(cats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cats)
    with pytest.raises(BadDataset, match="an empty name: no such folder"):
        read("")


@pytest.mark.parametrize("files", [[], ["text/notes.txt"], ["a/b/1.jpg"]])
def test_rejects_folder_without_photos_with_expected_layout(files: list[str], tmp_path: Path) -> None:
    root = tmp_path / "cats"
    root.mkdir()
    for file in files:
        put(root / file)
    with pytest.raises(BadDataset, match=r"cats: contains no folder of photos\. Expected: cats/IDENTITY/PHOTO\.jpg$"):
        scan_folders(root)


def test_rejects_photos_directly_in_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1.jpg", "2.JPG", "notes.txt"):
        put(tmp_path / "cats" / name)
    monkeypatch.chdir(tmp_path / "cats")
    with pytest.raises(BadDataset, match=r"2 photos are directly in it\. Expected: cats/IDENTITY"):
        scan_folders(Path())


def test_rejects_sources_with_same_name(cats: Path, tmp_path: Path) -> None:
    other = fill(tmp_path / "more" / "cats", {"Ida": ["1.jpg"]})
    with pytest.raises(BadDataset, match="two of the sources are named 'cats'"):
        scan_folders(cats, other)
    with pytest.raises(BadDataset, match="two of the sources are named 'synthetic:cats'"):
        read("synthetic:cats:5x3", "synthetic:cats:6x2")


def test_rejects_unlistable_folder_by_name(cats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(BadDataset, match=r"cats: cannot be read \(Permission denied\)$"):
        scan_folders(cats)


def test_folder_of_an_identity_that_cannot_be_listed_is_skipped(
    cats: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names, scandir = scan_folders(cats).names, os.scandir

    def refuse_first(folder: Path) -> object:
        if Path(folder).name == names[0].partition("/")[2]:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse_first)
    table = scan_folders(cats)
    assert table.names == names[1:]
    assert table.ignored["folders that cannot be read"] == 1
    assert f"{names[0]}: cannot be read (Permission denied)" in caplog.text


# Identities by name


def test_list_filters_only_roots_with_listed_name(cats: Path, tmp_path: Path) -> None:
    dogs = fill(tmp_path / "dogs", {"Rex": ["1.jpg"], "Ben": ["1.jpg"]})
    table = read(cats, dogs, "synthetic:cats:2x1", identities=("Tom", "Zoe", "nobody"))
    assert table.names == (
        "cats/Tom",
        "cats/Zoe",
        "dogs/Ben",
        "dogs/Rex",
        "synthetic:cats/000000",
        "synthetic:cats/000001",
    )
    assert table.ignored == {"identities not listed": 1, "listed identities not found": 1}


@pytest.mark.parametrize(
    ("unknown_names", "message"),
    [
        (1, "1 listed identities not found: x00"),
        (10, "10 listed identities not found: " + ", ".join(f"x{number:02}" for number in range(10))),
        (
            11,
            "11 listed identities not found: " + ", ".join(f"x{number:02}" for number in range(10)) + ", ...",
        ),
    ],
)
def test_reports_listed_names_not_in_data(
    unknown_names: int, message: str, cats: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dogs = fill(tmp_path / "dogs", {"Rex": ["1.jpg"]})
    names = ("Tom", "Rex", *(f"x{number:02}" for number in range(unknown_names)))
    table = read(cats, dogs, identities=names)
    assert table.names == ("cats/Tom", "dogs/Rex")
    assert table.ignored == {"identities not listed": 2, "listed identities not found": unknown_names}
    assert caplog.messages == [message]


def test_list_selects_synthetic_identities() -> None:
    assert read("synthetic:cats:5x3", identities=("000003",)).names == ("synthetic:cats/000003",)


def test_complete_list_ignores_no_identity(cats: Path) -> None:
    assert read(cats, identities=("Tom", "Mia", "Zoe")).ignored == {}


def test_rejects_list_without_matching_identity(cats: Path) -> None:
    with pytest.raises(BadDataset, match="none of the 2 listed identities is a folder in cats"):
        read(cats, identities=("cats/Tom", "tom"))


# Shares


@pytest.mark.parametrize("count", [1, 3, 7])
def test_identity_share_is_stable_when_identities_join(count: int, tmp_path: Path) -> None:
    root = fill(tmp_path / "cats", numbered(20))
    selected = set(read(root, max_identities=count).names)
    assert len(selected) == count
    assert read(root, max_identities=count).names == tuple(sorted(selected))
    fill(root, {f"new{number}": ["1.jpg"] for number in range(3)})
    with_new = set(read(root, max_identities=count).names)
    # Each new identity replaces at most one, and the replaced ones return if the limit allows all.
    assert {name for name in with_new if "new" not in name} <= selected
    assert selected <= set(read(root, max_identities=count + 3).names)


def test_share_is_not_first_by_name() -> None:
    shares = read("synthetic:cats:40x40", max_identities=20, max_photos=20)
    assert {photo.identity for photo in shares.photos if isinstance(photo, SyntheticPhoto)} != set(range(20))
    assert {photo.index for photo in shares.photos if isinstance(photo, SyntheticPhoto)} > set(range(20))


def test_larger_share_contains_smaller_share(tmp_path: Path) -> None:
    root = fill(tmp_path / "cats", numbered(12, photos=8))
    tables = [read(root, max_identities=count, max_photos=count) for count in range(1, 13)]
    for smaller, larger in pairwise(tables):
        assert set(listed(smaller)) < set(listed(larger))


def test_left_out_sources_are_not_read(cats: Path) -> None:
    both = (str(cats), "synthetic:dogs:3x4")
    table = DataSpec(both, leave_out=(cats.name,)).read()
    assert {name.split("/")[0] for name in table.names} == {"synthetic:dogs"}
    with pytest.raises(BadDataset, match=rf"cannot leave out lions: the data are {cats.name}, synthetic:dogs"):
        DataSpec(both, leave_out=("lions",)).read()
    with pytest.raises(BadDataset, match="nothing remains"):
        DataSpec((str(cats),), leave_out=(cats.name,)).read()


@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_max_photos_limits_each_identity(count: int, cats: Path) -> None:
    table = read(cats, "synthetic:dogs:3x4", max_photos=count)
    everything = read(cats, "synthetic:dogs:3x4")
    assert table.names == everything.names
    assert table.photos_per_identity.tolist() == np.minimum(everything.photos_per_identity, count).tolist()
    assert [row for row in listed(everything) if row in set(listed(table))] == listed(table)  # the same order


def test_share_is_invariant_to_folder_path_and_other_roots(cats: Path, tmp_path: Path) -> None:
    expected = read(cats, max_photos=1)
    moved = cats.rename(fill(tmp_path / "deeper", {"x": ["1.jpg"]}) / "cats")
    dogs = fill(tmp_path / "dogs", numbered(3, photos=5))
    together = read(dogs, moved, max_photos=1)
    assert [row for row in listed(together) if row[0].startswith("cats/")] == listed(expected)


def test_photo_share_differs_between_identities(tmp_path: Path) -> None:
    table = read(fill(tmp_path / "cats", numbered(30, photos=10)), max_photos=1)
    selected = [photo.name for photo in table.photos]
    assert len(selected) == 30
    assert len(set(selected)) > 5


def test_large_synthetic_source_lists_only_selected_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    photos = SyntheticSource.photos

    def counted(self: SyntheticSource, identity: int) -> tuple[SyntheticPhoto, ...]:
        listed.append(identity)
        return photos(self, identity)

    monkeypatch.setattr(SyntheticSource, "photos", counted)
    table = read("synthetic:cats:20000x6", max_identities=10)
    assert len(table.names) == 10
    assert len(table) == 60
    assert len(listed) <= 11  # one may be listed for the source's name


@pytest.mark.parametrize("limit", ["max_identities", "max_photos"])
@pytest.mark.parametrize("value", [0, -1])
def test_rejects_limit_below_one(limit: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{limit} must be at least 1"):
        DataSpec(("cats",), **{limit: value})


@given(st.sets(st.text(), max_size=8), st.text(), st.integers(0, 2**40))
def test_by_hash_order_is_stable_when_name_joins(names: set[str], other: str, seed: int) -> None:
    order = sort_by_hash(names, seed)
    assert sorted(order) == sorted(names)
    assert sort_by_hash(reversed(order), seed) == order
    assert [name for name in sort_by_hash(names | {other}, seed) if name != other] == [n for n in order if n != other]


def test_by_hash_depends_on_the_seed() -> None:
    names = [f"{number}" for number in range(50)]
    assert sort_by_hash(names, 1) != sort_by_hash(names, 2)


def test_by_hash_is_sha256_order() -> None:
    # SHA-256 of "0\\0a" to "0\\0e" begins with 5f, a8, 50, 4a, 54. A change would alter all existing splits.
    assert sort_by_hash(["a", "b", "c", "d", "e"]) == ["d", "c", "e", "a", "b"]


# Drawn pets


def test_mixes_synthetic_photos_with_folders(cats: Path) -> None:
    table = read(cats, "synthetic:cats:5x3")
    assert len(table.names) == 3 + 5
    assert len(table) == 5 + 5 * 3
    drawn = [photo for photo in table.photos if isinstance(photo, SyntheticPhoto)]
    assert drawn[0] == SyntheticPhoto("cats", 0, 0)
    assert drawn[-1] == SyntheticPhoto("cats", 4, 2)
    assert all(
        photo.name.startswith(f"{table.names[label]}/")
        for photo, label in zip(table.photos, table.labels, strict=True)
        if isinstance(photo, SyntheticPhoto)
    )


def test_synthetic_root_name_contains_seed() -> None:
    table = read("synthetic:cats:2x1:seed=3", "synthetic:cats:2x1")
    assert table.names[:2] == ("synthetic:cats/000000", "synthetic:cats/000001")
    assert table.names[2:] == ("synthetic:cats:seed=3/000000", "synthetic:cats:seed=3/000001")


def test_larger_synthetic_source_contains_smaller() -> None:
    assert set(read("synthetic:cats:2x2").photos) < set(read("synthetic:cats:3x4").photos)


@pytest.mark.parametrize(
    ("min_side_px", "drawn"), [(16, 32), (32, 32), (100, 100), (512, 512), (1024, 512), (None, 224)]
)
def test_synthetic_photo_has_nearest_allowed_size(min_side_px: int | None, drawn: int) -> None:
    assert open_photo(SyntheticPhoto("cats", 0, 0), min_side_px=min_side_px).size_px == (drawn, drawn)


def test_file_is_decoded_at_requested_min_side(tmp_path: Path) -> None:
    Image.new("RGB", (320, 640)).save(tmp_path / "1.jpg")
    photo = open_photo(tmp_path / "1.jpg", min_side_px=80)
    assert photo.size_px == (80, 160)
    assert photo.source_size_px == open_photo(tmp_path / "1.jpg").size_px == (320, 640)


# Fingerprint


def test_fingerprint_changes_with_every_edit(cats: Path) -> None:
    prints = [scan_folders(cats).fingerprint]

    def note() -> None:
        prints.append(scan_folders(cats).fingerprint)

    put(cats / "Tom" / "new.jpg")
    note()
    put(cats / "Tom" / "new.jpg", b"edited to another length")
    note()
    (cats / "Tom" / "new.jpg").rename(cats / "Tom" / "newer.jpg")
    note()
    (cats / "Tom" / "newer.jpg").rename(cats / "Mia" / "newer.jpg")
    note()
    cats.rename(cats.with_name("cats_2")).joinpath("Mia").rename(cats.with_name("cats_2") / "Mio")
    prints.append(scan_folders(cats.with_name("cats_2")).fingerprint)
    assert len(set(prints)) == len(prints)


def test_fingerprint_is_restored_when_change_is_reverted(cats: Path, tmp_path: Path) -> None:
    before = scan_folders(cats).fingerprint
    new = put(cats / "Tom" / "new.jpg")
    new.unlink()
    put(cats / "Tom" / "notes.txt")  # not a photo
    assert scan_folders(cats).fingerprint == before
    assert scan_folders(cats.rename(fill(tmp_path / "deep", {"x": ["1.jpg"]}) / "cats")).fingerprint == before


def test_fingerprint_is_invariant_to_row_order(cats: Path) -> None:
    table = read(cats, "synthetic:dogs:2x2")
    backwards = table.select_rows(np.arange(len(table))[::-1])
    assert backwards.photos != table.photos
    assert backwards.fingerprint == table.fingerprint
    assert table.select_rows(np.arange(len(table) - 1)).fingerprint != table.fingerprint


def test_fingerprint_accepts_deleted_photo(cats: Path) -> None:
    table = scan_folders(cats)
    (cats / "Tom" / "1.jpg").unlink()
    assert table.fingerprint != scan_folders(cats).fingerprint


def test_fingerprint_differs_between_synthetic_sources() -> None:
    sources = ["cats:2x2", "cats:2x3", "cats:3x2", "dogs:2x2", "cats:2x2:seed=1", "cats:2x2:difficulty=0.1"]
    assert len({read(f"synthetic:{source}").fingerprint for source in sources}) == len(sources)


# Parts of a table


labels_in_any_order = st.lists(st.integers(0, 5), max_size=15)


def labeled(identities: list[int]) -> IdentityTable:
    """Make a photo for each number, in a folder named by that number."""
    photos = tuple(Path(f"{identity}") / f"{row}.jpg" for row, identity in enumerate(identities))
    names, labels = np.unique(np.array(identities, np.int64), return_inverse=True)
    return IdentityTable(photos, labels, tuple(f"root/{name}" for name in names), {"hidden files": 1})


def assert_consistent(table: IdentityTable) -> None:
    """Check that every photo (named by its identity in `labeled`) keeps its identity and each identity has a photo."""
    assert [f"root/{photo.parent.name}" for photo in table.photos if isinstance(photo, Path)] == [
        table.names[label] for label in table.labels
    ]
    assert sorted(set(table.labels.tolist())) == list(range(len(table.names)))
    assert list(table.names) == sorted(table.names)
    assert table.photos_per_identity.sum() == len(table)
    assert (table.photos_per_identity > 0).all()
    assert table.labels.dtype == np.int64


@given(labels_in_any_order, st.data())
def test_rows_keeps_photos_labels_and_names_consistent(identities: list[int], data: st.DataObject) -> None:
    table = labeled(identities)
    chosen = data.draw(st.lists(st.sampled_from(range(len(table))), unique=True) if len(table) else st.just([]))
    part = table.select_rows(np.array(chosen, np.int64))
    assert_consistent(part)
    assert part.photos == tuple(table.photos[row] for row in chosen)
    assert part.ignored == table.ignored


@given(labels_in_any_order, st.sets(st.sampled_from([f"root/{i}" for i in range(8)])))
def test_select_identities_keeps_all_photos_for_names(identities: list[int], names: set[str]) -> None:
    table = labeled(identities)
    part = table.select_identities(iter(names))
    assert_consistent(part)
    assert listed(part) == [row for row in listed(table) if row[0] in names]


@given(labels_in_any_order, st.integers(-1, 7))
def test_with_at_least_keeps_identities_with_enough_photos(identities: list[int], photos: int) -> None:
    table = labeled(identities)
    part = table.with_min_photos(photos)
    assert_consistent(part)
    enough = {n for n, c in zip(table.names, table.photos_per_identity, strict=True) if c >= photos}
    assert listed(part) == [row for row in listed(table) if row[0] in enough]
    assert set(part.names) == enough


# Lists of identities


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("4038\nAJ_Cook\t1\nAaron_Eckhart\t1\n", {"AJ_Cook", "Aaron_Eckhart"}),
        (
            "10\n601\nAbdel_Madi_Shabneh\t1\nAbdul_Rahman\t1\n555\nAdam_Ant\t2\n",
            {"Abdel_Madi_Shabneh", "Abdul_Rahman", "Adam_Ant"},
        ),
        ("2\n007\t3\nTom\t1\n", {"007", "Tom"}),
        ("Tom\nMia\n", {"Tom", "Mia"}),
        ("Tom\r\nMia", {"Tom", "Mia"}),
        ("\n Tom \n\n\nTom\n", {"Tom"}),
        ("000003\n000012\n", {"000003", "000012"}),
        ("Tom the cat\nقطة\n", {"Tom the cat", "قطة"}),
        ("\ufeffTom\nMia\n", {"Tom", "Mia"}),
        ("Jose\u0301\u2028Ruiz\u3000\nMia\u200e\n", {"Jos\u00e9 Ruiz", "Mia"}),
    ],
    ids=[
        "lfw",
        "lfw folds",
        "lfw with a number for a name",
        "plain",
        "Windows",
        "blank",
        "numbers",
        "unicode",
        "mark",
        "spellings",
    ],
)
def test_reads_identity_list_formats(text: str, names: set[str], tmp_path: Path) -> None:
    path = put(tmp_path / "people.txt", text.encode())
    assert read_identity_list(path) == names


@pytest.mark.parametrize("content", [b"", b" \n\n\t\n", b"3\n\t\n"])
def test_rejects_list_without_name(content: bytes, tmp_path: Path) -> None:
    path = put(tmp_path / "people.txt", content)
    with pytest.raises(BadDataset, match=r"people\.txt: lists no identity"):
        read_identity_list(path)


def test_rejects_unreadable_list(tmp_path: Path) -> None:
    path = put(tmp_path / "people.txt", bytes(range(256)))
    for unreadable in (path, tmp_path, tmp_path / "missing.txt"):
        with pytest.raises(BadDataset, match=f"{unreadable.name}: cannot be read as a list of identities"):
            read_identity_list(unreadable)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "identities", "photos"),
    [("peopleDevTrain.txt", 4038, 9525), ("peopleDevTest.txt", 1711, 3708), ("people.txt", 5749, 13233)],
)
def test_lfw_lists_select_published_counts(name: str, identities: int, photos: int, shared_data: Path) -> None:
    people = tuple(sorted(read_identity_list(shared_data / "lfw_112" / name)))
    assert len(people) == identities
    table = read(shared_data / "lfw_112", identities=people)
    assert len(table.names) == identities
    assert len(table) == photos
