"""Exporting identity labels from one gallery and importing them into another."""

import csv
import errno
import os
import shutil
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from familiar.core.errors import BadDataset, CannotWrite, NotInGallery
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.gallery import Gallery
from familiar.gallery.same.assignments import load_assignments, resolve_face, resolve_identity
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.import_export import (
    COLUMNS,
    ExportResult,
    export_csv,
    export_folders,
    import_csv,
    import_folders,
)
from support.color_album import create_gallery, draw_album, draw_photo


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Three photos of red, two of green, one of blue, and `both`: green on the left, red on the right."""
    singles = draw_album(tmp_path / "photos", red=3, green=2, blue=1)
    return [*singles, draw_photo(tmp_path / "photos" / "both.png", "green", "red", shade=9)]


@pytest.fixture
def gallery(tmp_path: Path, mean_color_bundle: Path, photos: list[Path]) -> Iterator[Store]:
    with create_gallery(tmp_path / "gallery", mean_color_bundle, photos) as gallery:
        yield gallery


def faces_by_label(gallery: Store) -> dict[str, set[str]]:
    """Return the faces of each identity, by name or #number; a face is its photo's name and left_px."""
    faces: defaultdict[str, set[str]] = defaultdict(set)
    with gallery.read() as repository:
        for label, path, left_px in repository.connection.rows(
            "SELECT coalesce(name, '#' || identities.id), path, left_px FROM identities JOIN assignments "
            "ON identity_id = identities.id JOIN faces ON faces.id = face_id JOIN photos ON photos.id = photo_id"
        ):
            faces[label].add(f"{Path(os.fsdecode(path)).name} {left_px:.0f}")
    return dict(faces)


def without_numbers(faces_of: dict[str, set[str]]) -> list[tuple[str, list[str]]]:
    return sorted(("#" if label.startswith("#") else label, sorted(faces)) for label, faces in faces_of.items())


def table(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_csv_export_and_import_restore_identities(
    gallery: Store, tmp_path: Path, mean_color_bundle: Path, photos: list[Path]
):
    cluster(gallery)
    red = int(load_assignments(gallery).identity[0])
    corrections.name_identity(gallery, red, 'Rosa, the "red"')
    before = without_numbers(faces_by_label(gallery))
    assert [faces for _, faces in before] == [
        ["both.png 0", "green1.png 0", "green2.png 0"],
        ["both.png 32", "red1.png 0", "red2.png 0", "red3.png 0"],
    ]
    assert export_csv(gallery, tmp_path / "labels.csv") == 8
    assert (tmp_path / "labels.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    with create_gallery(tmp_path / "fresh", mean_color_bundle, photos[::-1]) as fresh:  # gives the faces other numbers
        imported = import_csv(fresh, tmp_path / "labels.csv")
        assert (imported.faces, imported.identities, imported.propagated_faces, imported.skipped) == (7, 2, 0, ())
        assert without_numbers(faces_by_label(fresh)) == before
        assert load_assignments(fresh).by_user.sum() == 7
        assert [decision.kind for decision in decisions(fresh)] == ["import"]
        import_csv(fresh, tmp_path / "labels.csv")
        assert without_numbers(faces_by_label(fresh)) == before
        assert len(decisions(fresh)) == 1, "importing the same table again changes nothing"
        undo(fresh)
        assert faces_by_label(fresh) == {}


def test_csv_import_with_two_columns_reuses_known_names(
    gallery: Store, tmp_path: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch
):
    cluster(gallery)
    red = int(load_assignments(gallery).identity[0])
    corrections.name_identity(gallery, red, "Rosa")
    monkeypatch.chdir(tmp_path)
    csv_file = table(tmp_path / "n.csv", "name,path", "Rosa,photos/blue1.png", f"Gerd,{photos[3]}", f",{photos[4]}")
    imported = import_csv(gallery, csv_file)
    assert (imported.faces, imported.identities, imported.propagated_faces) == (2, 2, 0)
    now = faces_by_label(gallery)
    assert resolve_identity(gallery, "Rosa") == red
    assert now["Rosa"] == {"both.png 32", "red1.png 0", "red2.png 0", "red3.png 0", "blue1.png 0"}
    # The other two of his cluster are as similar to each other as to him, so they stay.
    assert now["Gerd"] == {"green1.png 0"}


def test_csv_import_selects_a_face_by_box_or_number(gallery: Store, tmp_path: Path):
    both = tmp_path / "photos" / "both.png"
    with pytest.raises(Exception, match="give one of these numbers") as several:
        resolve_face(gallery, str(both))
    right_face = int(str(several.value).split(":")[1].split(",")[1])
    columns = f"{BOX_COLUMNS},face"
    csv_file = table(tmp_path / "n.csv", columns, f"{both},Rosa,35,2,66,30,", f"{both},Gerd,0,0,33,33,{right_face}")
    import_csv(gallery, csv_file)
    assert faces_by_label(gallery) == {"Rosa": {"both.png 32"}, "Gerd": {"both.png 0"}}
    undo(gallery)
    import_csv(gallery, table(tmp_path / "n.csv", columns, f"{both},Rosa,,,,,{right_face}"))
    assert faces_by_label(gallery) == {"Rosa": {"both.png 32"}}


BOX_COLUMNS = "path,name,left_px,top_px,right_px,bottom_px"


@pytest.mark.parametrize("content", [b"", b"path;name\na;b\n", b'"path,name\n', b"\xff\xd8\xff\xe0\0\x10JFIF\0\n\r"])
def test_csv_import_rejects_a_file_that_is_no_such_table(gallery: Store, tmp_path: Path, content: bytes):
    (tmp_path / "n.csv").write_bytes(content)
    with pytest.raises(BadDataset, match='line 1: the header must contain the columns "path" and "name"'):
        import_csv(gallery, tmp_path / "n.csv")
    with pytest.raises(BadDataset, match="cannot be read"):
        import_csv(gallery, tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("header", "bad", "message"),
    [
        ("path,name", "RED1", "has more or fewer cells"),
        ("path,name", "RED1,Rosa,Rosa", "has more or fewer cells"),
        ("path,name,face", "RED1,Rosa,first", "'first'"),
        ("path,name,left_px", "RED1,Rosa,3", ""),
        (BOX_COLUMNS, "RED1,Rosa,0,0,nan,3", "a side of the box"),
        ("path,name", ",Rosa", "the path is empty"),
        ("path,name", "RED1,Ro\x1bsa", "is not a valid name: it has the control character U+001B (escape)"),
        ("path,name", "gone.png,Rosa", "no photo of the gallery"),
        ("path,name", "BOTH,Rosa", "more than one"),
        (BOX_COLUMNS, "BOTH,Rosa,60,0,100,32", "no such face, or more than one"),
        ("path,name,sha256", "RED1,Rosa,12", "the sha256 '12' is not 64 hexadecimal digits"),
        ("path,name", '"RED1"x,Rosa', "expected after"),
        ("path,name", "GREEN1,Ruth", "green1.png: is labeled Ruth here, and Gerd in line 2, which counts"),
    ],
)
def test_csv_import_skips_bad_rows_and_imports_the_others(
    gallery: Store, tmp_path: Path, header: str, bad: str, message: str
):
    commas = "," * (header.count(",") - 1)
    text = "\n".join([header, f"GREEN1,Gerd{commas}", bad, f"BLUE1,Blau{commas}", ""])
    for name in ("red1", "green1", "blue1", "both"):
        text = text.replace(name.upper(), str(tmp_path / "photos" / f"{name}.png"))
    (tmp_path / "n.csv").write_text(text)
    (reason,) = import_csv(gallery, tmp_path / "n.csv").skipped
    assert reason.startswith(f"{tmp_path}/n.csv, line {3 + bad.count(chr(10))}: ")
    assert message in reason
    assert faces_by_label(gallery) == {"Blau": {"blue1.png 0"}, "Gerd": {"green1.png 0"}}


def test_csv_import_says_that_lines_after_an_open_quotation_mark_are_left_out(gallery: Store, tmp_path: Path):
    folder = tmp_path / "photos"
    lines = ("path,name", f"{folder}/red1.png,Rosa", f'{folder}/green1.png,"Gerd', f"{folder}/blue1.png,Blau")
    (reason,) = import_csv(gallery, table(tmp_path / "n.csv", *lines)).skipped
    assert "line 3: " in reason
    assert "all lines from here on are left out" in reason
    assert faces_by_label(gallery) == {"Rosa": {"red1.png 0"}}


def test_csv_import_accepts_one_identity_twice_in_a_photo(gallery: Store, tmp_path: Path):
    both, columns = tmp_path / "photos" / "both.png", BOX_COLUMNS
    import_csv(gallery, table(tmp_path / "n.csv", columns, f"{both},Rosa,32,0,64,32", f"{both},Gerd,0,0,32,32"))
    assert import_csv(gallery, table(tmp_path / "n.csv", columns, f"{both},Rosa,0,0,32,32")).skipped == ()
    assert faces_by_label(gallery) == {"Rosa": {"both.png 0", "both.png 32"}}
    export_csv(gallery, tmp_path / "labels.csv")
    assert export_folders(gallery, tmp_path / "folders").photos == 1
    undo(gallery)
    import_csv(gallery, tmp_path / "labels.csv")
    cluster(gallery, rebuild=True)
    assert {"both.png 0", "both.png 32"} <= faces_by_label(gallery)["Rosa"]
    # Two names are swapped.
    swapped = table(tmp_path / "n.csv", columns, f"{both},Gerd,32,0,64,32", f"{both},Rosa,0,0,32,32")
    import_csv(gallery, swapped)
    assert "both.png 32" in faces_by_label(gallery)["Gerd"]
    assert "both.png 0" in faces_by_label(gallery)["Rosa"]


def test_csv_keeps_paths_with_invalid_utf8(tmp_path: Path, mean_color_bundle: Path):
    (plain,) = draw_album(tmp_path / "odd", red=1)
    odd = Path(os.fsdecode(os.fsencode(tmp_path / "odd" / "r") + b'\xff, "1"\n.png'))
    plain.rename(odd)
    with create_gallery(tmp_path / "gallery", mean_color_bundle, [odd]) as gallery:
        corrections.split(gallery, [resolve_face(gallery, str(odd))], "Rosa")
        export_csv(gallery, tmp_path / "labels.csv")
        undo(gallery)
        assert import_csv(gallery, tmp_path / "labels.csv").faces == 1
        assert list(faces_by_label(gallery)) == ["Rosa"]


def test_folder_export_and_import_restore_identities(
    gallery: Store, tmp_path: Path, mean_color_bundle: Path, photos: list[Path]
):
    cluster(gallery)
    corrections.name_identity(gallery, int(load_assignments(gallery).identity[0]), "Rosa/Ro: .")
    photos[4].unlink()
    exported = export_folders(gallery, tmp_path / "linked", link=True)
    assert (exported.photos, exported.identities, exported.missing) == (6, 2, (str(photos[4]),))
    (number,) = (label for label in faces_by_label(gallery) if label.startswith("#"))
    assert {path.name for path in (tmp_path / "linked").iterdir()} == {"Rosa_Ro_", number}
    assert (tmp_path / "linked" / "Rosa_Ro_" / "red3.png").readlink() == photos[2]
    export_folders(gallery, tmp_path / "copied")
    with pytest.raises(CannotWrite, match="not empty"):
        export_folders(gallery, tmp_path / "copied")
    for path in photos[:4]:
        path.unlink()  # the copies have the same content, which identifies them
    with create_gallery(tmp_path / "fresh", mean_color_bundle, sorted((tmp_path / "copied").rglob("*1.png"))) as fresh:
        imported = import_folders(fresh, tmp_path / "copied")
        assert (imported.faces, imported.identities, len(imported.skipped)) == (2, 2, 4)
        assert without_numbers(faces_by_label(fresh)) == [("#", ["green1.png 0"]), ("Rosa_Ro_", ["red1.png 0"])]


def test_folder_import_skips_what_it_cannot_use(gallery: Store, tmp_path: Path, photos: list[Path]):
    root = tmp_path / "sorted"
    for name, path in (("Rosa", photos[0]), ("Rosa", photos[6]), ("Blau", photos[5]), ("Tom\x1b", photos[3])):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / path.name).symlink_to(path)
    (root / "Rosa" / "again.png").write_bytes(photos[5].read_bytes())
    os.mkfifo(root / "Rosa" / "pipe.png")
    (root / "Rosa" / "gone.png").symlink_to(tmp_path / "gone.png")
    (root / "empty").mkdir()
    assert import_folders(gallery, root).skipped == (
        f"{root}/Rosa/again.png: is the same photo as {root}/Blau/blue1.png, which counts; remove it from one of the "
        "two folders",
        f"{root}/Rosa/both.png: shows 2 faces",
        f"{root}/Rosa/gone.png: No such file or directory",
        f"{root}/Rosa/pipe.png: a folder or a special file",
        f"{root}/Tom\\x1b: 'Tom\\x1b' is not a valid name: it has the control character U+001B (escape); rename the "
        "folder",
        f"no photo found in {root}/empty",
    )
    assert faces_by_label(gallery) == {"Rosa": {"red1.png 0"}, "Blau": {"blue1.png 0"}}
    with pytest.raises(BadDataset, match="contains no folders"):
        import_folders(gallery, root / "empty")
    with pytest.raises(BadDataset, match="cannot be listed"):
        import_folders(gallery, tmp_path / "none")


@pytest.mark.parametrize(
    ("exclude", "labels", "passed_over"),
    [
        ((), {"Rosa": {"red1.png 0"}, "Blau": {"blue1.png 0"}}, "1 in system folders"),
        (("BLUE*",), {"Rosa": {"red1.png 0"}}, "1 excluded, 1 in system folders"),
        (("blau",), {"Rosa": {"red1.png 0"}}, "1 excluded, 1 in system folders"),
        (("blau/2019",), {"Rosa": {"red1.png 0"}}, "1 excluded, 1 in system folders"),
        (("Blau/*/*.png", "2019.png"), {"Rosa": {"red1.png 0"}}, "1 excluded, 1 in system folders"),
    ],
)
def test_folder_import_leaves_out_what_is_excluded_and_folders_of_systems(
    gallery: Store,
    tmp_path: Path,
    photos: list[Path],
    caplog: pytest.LogCaptureFixture,
    exclude: tuple[str, ...],
    labels: dict[str, set[str]],
    passed_over: str,
):
    root = tmp_path / "sorted"
    for name, path in (
        ("Rosa", photos[0]),
        ("Blau/2019", photos[5]),
        ("Rosa/@eaDir", photos[1]),
        ("@eaDir", photos[3]),
    ):
        (root / name).mkdir(parents=True)
        (root / name / path.name).symlink_to(path)
    import_folders(gallery, root, exclude)
    assert faces_by_label(gallery) == labels
    assert caplog.messages == [f"{root}: passed over {passed_over}"]


@pytest.mark.parametrize("error", [errno.EACCES, errno.ENOSPC])
def test_folder_export_goes_on_after_a_photo_that_cannot_be_copied_unless_the_disk_is_full(
    gallery: Store, tmp_path: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch, error: int
):
    corrections.split(gallery, [1, 2], "Rosa")
    copy = shutil.copy2

    def copy_one(source: Path, target: Path) -> object:
        if source == photos[0]:
            raise OSError(error, os.strerror(error), str(source))
        return copy(source, target)

    monkeypatch.setattr(shutil, "copy2", copy_one)
    if error == errno.ENOSPC:
        with pytest.raises(CannotWrite, match="No space left"):
            export_folders(gallery, tmp_path / "copied")
        return
    assert export_folders(gallery, tmp_path / "copied").skipped == (
        f"{photos[0]}: cannot be copied (Permission denied)",
    )
    names = {path.name for path in (tmp_path / "copied" / "Rosa").iterdir()}
    assert "red2.png" in names
    assert "red1.png" not in names


def test_folder_export_shortens_names_that_would_be_too_long(tmp_path: Path, mean_color_bundle: Path):
    name = "ミア" * 40 + "a" * 11 + ".png"  # 255 bytes
    for folder in "ab":
        (tmp_path / folder).mkdir()
    photos = [draw_photo(tmp_path / folder / name, "red", shade=shade) for shade, folder in enumerate("ab")]
    with create_gallery(tmp_path / "gallery", mean_color_bundle, photos) as gallery:
        corrections.split(gallery, [1, 2], "猫" * 100)
        exported = export_folders(gallery, tmp_path / "out")
    assert (exported.photos, exported.skipped) == (2, ())
    (folder,) = (tmp_path / "out").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["ミア" * 40 + "a" * 9 + "-2.png", name]


def test_imports_take_every_spelling_of_a_name_as_the_same(gallery: Store, tmp_path: Path, photos: list[Path]):
    composed, decomposed = "Jos\u00e9 Ruiz", "\u200eJose\u0301\u3000Ruiz"
    import_csv(gallery, table(tmp_path / "names.csv", "path,name", f"{photos[0]},{composed}"))
    lines = [f"{photos[0]},{decomposed}", f"{photos[1]},{composed}"]
    assert import_csv(gallery, table(tmp_path / "names.csv", "path,name", *lines)).identities == 1
    for name, path in ((composed, photos[2]), (decomposed, photos[1])):
        (tmp_path / "sorted" / name).mkdir(parents=True)
        (tmp_path / "sorted" / name / path.name).symlink_to(path)
    assert import_folders(gallery, tmp_path / "sorted").identities == 1
    assert faces_by_label(gallery) == {composed: {"red1.png 0", "red2.png 0", "red3.png 0"}}


def test_exported_folders_are_read_back_as_the_names_that_they_stand_for(
    gallery: Store, tmp_path: Path, photos: list[Path]
):
    names = ("Jos\u00e9", "A/C D.C.", "Mia", "mia", "\ue000")
    rows = [f"{path},{name}" for path, name in zip(photos, names, strict=False)]
    import_csv(gallery, table(tmp_path / "names.csv", "path,name", *rows))
    before = faces_by_label(gallery)
    assert set(before) == set(names)
    export_folders(gallery, tmp_path / "out")
    for folder in (tmp_path / "out").iterdir():
        folder.rename(folder.with_name(unicodedata.normalize("NFD", folder.name)))  # as macOS has it
    assert import_folders(gallery, tmp_path / "out").skipped == ()
    assert faces_by_label(gallery) == before


def set_species(gallery: Store, species: Mapping[str, str | None]) -> None:
    """Set the species of the faces in photos, by the photo's name."""
    with gallery.write() as repository:
        for face in repository.faces.rows():
            label = species.get(Path(face.path).name)
            repository.connection.execute("UPDATE faces SET species = ? WHERE id = ?", (label, face.face))


def test_folders_and_table_of_several_species_tell_them_apart(gallery: Store, tmp_path: Path, photos: list[Path]):
    rows = [f"{photos[0]},Mia", f"{photos[1]},Mia", f"{photos[2]},Anna", f"{photos[3]},Bo"]
    import_csv(gallery, table(tmp_path / "names.csv", "path,name", *rows))
    set_species(gallery, {"red1.png": "cat", "red2.png": "cat", "red3.png": "person"})
    before = faces_by_label(gallery)
    exported = export_folders(gallery, tmp_path / "out")
    assert (exported.photos, exported.identities) == (4, 3)
    assert {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.png")} == {
        "cats/Mia/red1.png",
        "cats/Mia/red2.png",
        "people/Anna/red3.png",
        f"others/Bo/{photos[3].name}",
    }
    assert import_folders(gallery, tmp_path / "out").skipped == ()
    assert faces_by_label(gallery) == before, "cats is no name"
    export_csv(gallery, tmp_path / "all.csv")
    with (tmp_path / "all.csv").open() as file:
        species = {Path(row["path"]).name: row["species"] for row in csv.DictReader(file)}
    assert (species["red1.png"], species["red3.png"], species[photos[3].name]) == ("cat", "person", "")


def test_photos_of_one_identity_are_exported_into_the_folder_itself(gallery: Store, tmp_path: Path, photos: list[Path]):
    rows = [f"{photos[0]},Mia", f"{photos[1]},Mia", f"{photos[2]},Anna"]
    import_csv(gallery, table(tmp_path / "names.csv", "path,name", *rows))
    album = Gallery(gallery)
    exported = album.export(tmp_path / "mia", identity="Mia")
    assert isinstance(exported, ExportResult)
    assert (exported.photos, exported.identities) == (2, 1)
    files = sorted((tmp_path / "mia").iterdir())
    assert [path.name for path in files] == ["red1.png", "red2.png"]
    assert not any(path.is_symlink() for path in files), "a link on another disk leads nowhere"
    assert album.export(tmp_path / "mia.csv", identity="Mia") == 2
    with pytest.raises(NotInGallery):
        album.export(tmp_path / "none", identity="Nobody")


def test_uploaded_photos_are_exported_under_the_names_that_they_had(
    tmp_path: Path, mean_color_bundle: Path, photos: list[Path]
):
    uploads = [
        tmp_path / "gallery" / "photos" / name[:2] / name
        for name in (f"{'c' * 64}-IMG_0029.png", f"{'b' * 64}-IMG_0029.png", f"{'a' * 64}-IMG_0030.png")
    ]
    for source, upload in zip(photos, uploads, strict=False):
        upload.parent.mkdir(parents=True)
        shutil.copy(source, upload)
    with create_gallery(tmp_path / "gallery", mean_color_bundle, uploads) as gallery:
        corrections.split(gallery, [1, 2, 3], "Mia")
        export_folders(gallery, tmp_path / "mia", identity=resolve_identity(gallery, "Mia"))
    files = sorted(path.name for path in (tmp_path / "mia").iterdir())
    assert files == ["IMG_0029-2.png", "IMG_0029.png", "IMG_0030.png"]
