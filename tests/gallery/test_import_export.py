"""Exporting identity labels from one gallery and importing them into another."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from familiar.core.errors import BadDataset, CannotWrite
from familiar.gallery.clustering.assignments import load_assignments, resolve_face, resolve_identity
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.editing import corrections
from familiar.gallery.editing.undo_log import decisions, undo
from familiar.gallery.transfer.import_export import (
    COLUMNS,
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
def gallery(tmp_path: Path, mean_color_bundle: Path, photos: list[Path]) -> Iterator[GalleryDatabase]:
    with create_gallery(tmp_path / "gallery", mean_color_bundle, photos) as gallery:
        yield gallery


def faces_by_label(gallery: GalleryDatabase) -> dict[str, set[str]]:
    """Return the faces of each identity, by name or #number; a face is its photo's name and left_px."""
    assignments = load_assignments(gallery)
    with gallery.reading() as repository:
        face_at = {
            face: f"{Path(path).name} {left_px:.0f}"
            for face, path, left_px in repository.connection.execute(
                "SELECT faces.id, path, left_px FROM faces JOIN photos ON photos.id = photo_id"
            )
        }
    faces: dict[str, set[str]] = {}
    for row, number in enumerate(assignments.identity.tolist()):
        if number >= 0:
            label = assignments.names.get(number, f"#{number}")
            faces.setdefault(label, set()).add(face_at[int(assignments.faces.ids[row])])
    return faces


def without_numbers(faces_of: dict[str, set[str]]) -> list[tuple[str, list[str]]]:
    return sorted(("#" if label.startswith("#") else label, sorted(faces)) for label, faces in faces_of.items())


def table(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_csv_export_and_import_restore_identities(
    gallery: GalleryDatabase, tmp_path: Path, mean_color_bundle: Path, photos: list[Path]
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


def test_csv_has_one_row_per_face(gallery: GalleryDatabase, tmp_path: Path):
    cluster(gallery)
    export_csv(gallery, tmp_path / "labels.csv")
    rows = list(csv.DictReader((tmp_path / "labels.csv").read_text().splitlines()))
    assert tuple(rows[0]) == COLUMNS
    blue, both = rows[0], rows[1:3]
    assert (Path(blue["path"]).name, blue["identity"], blue["name"], blue["by_user"]) == (
        "blue1.png",
        "",
        "",
        "",
    )
    assert [(Path(row["path"]).name, row["left_px"], row["right_px"]) for row in both] == [
        ("both.png", "0.0", "32.0"),
        ("both.png", "32.0", "64.0"),
    ]
    assert {row["by_user"] for row in both} == {"0"}


def test_csv_import_with_two_columns_reuses_known_names(
    gallery: GalleryDatabase, tmp_path: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch
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


def test_csv_import_selects_a_face_by_box_or_number(gallery: GalleryDatabase, tmp_path: Path):
    both = tmp_path / "photos" / "both.png"
    with pytest.raises(Exception, match="give one of these numbers") as several:
        resolve_face(gallery, str(both))
    right_face = int(str(several.value).split(":")[1].split(",")[1])
    columns = "path,name,left_px,top_px,right_px,bottom_px,face"
    csv_file = table(tmp_path / "n.csv", columns, f"{both},Rosa,35,2,66,30,", f"{both},Gerd,0,0,33,33,{right_face}")
    import_csv(gallery, csv_file)
    assert faces_by_label(gallery) == {"Rosa": {"both.png 32"}, "Gerd": {"both.png 0"}}
    undo(gallery)
    import_csv(gallery, table(tmp_path / "n.csv", columns, f"{both},Rosa,,,,,{right_face}"))
    assert faces_by_label(gallery) == {"Rosa": {"both.png 32"}}


def test_csv_import_lists_rows_without_a_matching_face(gallery: GalleryDatabase, tmp_path: Path, photos: list[Path]):
    both = tmp_path / "photos" / "both.png"
    csv_file = table(
        tmp_path / "n.csv",
        "path,name,left_px,top_px,right_px,bottom_px",
        "gone.png,Rosa,,,,",
        f"{both},Rosa,,,,",
        f"{both},Rosa,60,0,100,32",
        f"{photos[0]},Rosa,,,,",
    )
    imported = import_csv(gallery, csv_file)
    assert imported.faces == 1
    assert [row.split(": ")[0].rpartition(" ")[2] for row in imported.skipped] == ["2", "3", "4"]
    assert "no photo of the gallery" in imported.skipped[0]
    assert "more than one" in imported.skipped[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["path;name", "a;b"], 'line 1: the header must contain the columns "path" and "name"'),
        ([], "line 1: the header must contain"),
        (["path,name", "RED1,Rosa", "RED2"], "line 3: has more or fewer cells"),
        (["path,name", "RED1,Rosa,Rosa"], "line 2: has more or fewer cells"),
        (["path,name,face", "RED1,Rosa,first"], "line 2: .*first"),
        (["path,name,left_px", "RED1,Rosa,3"], "line 2: "),
        (["path,name,left_px,top_px,right_px,bottom_px", "RED1,Rosa,0,0,nan,3"], "line 2: a side of the box"),
        (["path,name", ",Rosa"], "line 2: the path is empty"),
        (["path,name", "RED1,Ro\x1bsa"], "line 2: the name .* is not one line"),
        (["path,name", 'RED1,"Rosa'], "line 2: unexpected end of data"),
        (["path,name", "RED1,Rosa", "RED1,Ruth"], "line 3: .*is labeled Ruth here, and Rosa in line 2"),
    ],
)
def test_csv_import_rejects_bad_lines_and_imports_nothing(
    gallery: GalleryDatabase, tmp_path: Path, lines: list[str], message: str
):
    folder = tmp_path / "photos"
    good = [f"{folder / 'green1.png'},Gerd" + "," * (line.count(",") - 1) for line in lines[:1] if "," in line]
    written = [*lines, *good]
    for name in ("red1", "red2", "both"):
        written = [line.replace(name.upper(), str(folder / f"{name}.png")) for line in written]
    with pytest.raises(BadDataset, match=message):
        import_csv(gallery, table(tmp_path / "n.csv", *written))
    assert faces_by_label(gallery) == {}
    with pytest.raises(BadDataset, match="cannot be read"):
        import_csv(gallery, tmp_path / "none.csv")


def test_csv_import_accepts_one_identity_twice_in_a_photo(gallery: GalleryDatabase, tmp_path: Path):
    both, columns = tmp_path / "photos" / "both.png", "path,name,left_px,top_px,right_px,bottom_px"
    import_csv(gallery, table(tmp_path / "n.csv", columns, f"{both},Rosa,32,0,64,32", f"{both},Gerd,0,0,32,32"))
    assert import_csv(gallery, table(tmp_path / "n.csv", columns, f"{both},Rosa,0,0,32,32")).skipped == ()
    assert faces_by_label(gallery) == {"Rosa": {"both.png 0", "both.png 32"}}
    export_csv(gallery, tmp_path / "labels.csv")
    assert export_folders(gallery, tmp_path / "folders").photos == 1
    assert [path.name for path in (tmp_path / "folders" / "Rosa").iterdir()] == ["both.png"]
    undo(gallery)
    undo(gallery)
    assert faces_by_label(gallery) == {}
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
    gallery: GalleryDatabase, tmp_path: Path, mean_color_bundle: Path, photos: list[Path]
):
    cluster(gallery)
    corrections.name_identity(gallery, int(load_assignments(gallery).identity[0]), "Rosa/Ro: .")
    before = photos[2].read_bytes()
    photos[4].unlink()
    exported = export_folders(gallery, tmp_path / "linked")
    assert (exported.photos, exported.identities, exported.missing) == (6, 2, (str(photos[4]),))
    (number,) = (label for label in faces_by_label(gallery) if label.startswith("#"))
    assert {path.name for path in (tmp_path / "linked").iterdir()} == {"Rosa_Ro_", number}
    link = tmp_path / "linked" / "Rosa_Ro_" / "red3.png"
    assert link.is_symlink()
    assert link.readlink() == photos[2]
    export_folders(gallery, tmp_path / "copied", "copy")
    assert not (tmp_path / "copied" / "Rosa_Ro_" / "red3.png").is_symlink()
    with pytest.raises(CannotWrite, match="not empty"):
        export_folders(gallery, tmp_path / "copied", "copy")
    for path in photos[:4]:
        path.unlink()  # the copies have the same content, which identifies them
    with create_gallery(tmp_path / "fresh", mean_color_bundle, sorted((tmp_path / "copied").rglob("*1.png"))) as fresh:
        imported = import_folders(fresh, tmp_path / "copied")
        assert (imported.faces, imported.identities) == (2, 2)
        assert len(imported.skipped) == 4
        assert without_numbers(faces_by_label(fresh)) == [("#", ["green1.png 0"]), ("Rosa_Ro_", ["red1.png 0"])]
    assert (tmp_path / "copied" / "Rosa_Ro_" / "red3.png").read_bytes() == before


def test_folder_import_skips_two_face_photos_and_rejects_duplicates(
    gallery: GalleryDatabase, tmp_path: Path, photos: list[Path]
):
    root = tmp_path / "sorted"
    for name, path in (("Rosa", photos[0]), ("Rosa", photos[6]), ("Blau", photos[5])):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / path.name).symlink_to(path)
    imported = import_folders(gallery, root)
    assert imported.skipped == (f"{root}/Rosa/both.png: shows 2 faces",)
    assert faces_by_label(gallery) == {"Rosa": {"red1.png 0"}, "Blau": {"blue1.png 0"}}
    undo(gallery)
    (root / "Blau" / "again.png").write_bytes(photos[0].read_bytes())
    with pytest.raises(BadDataset, match=r"Rosa/red1\.png: is the same photo as .*Blau/again\.png"):
        import_folders(gallery, root)
    assert faces_by_label(gallery) == {}
    (root / "empty").mkdir()
    with pytest.raises(BadDataset, match="contains no folders"):
        import_folders(gallery, root / "empty")
    with pytest.raises(BadDataset, match="cannot be listed"):
        import_folders(gallery, tmp_path / "none")


def test_folder_export_numbers_colliding_names(tmp_path: Path, photos: list[Path], mean_color_bundle: Path):
    (tmp_path / "more").mkdir()
    same_name = draw_photo(tmp_path / "more" / "red1.png", "red", shade=4)
    with create_gallery(tmp_path / "second", mean_color_bundle, [photos[0], same_name]) as second:
        identity = corrections.split(second, [1, 2], "A/b").identity
        exported = export_folders(second, tmp_path / "out")
        assert exported.photos == 2
        assert sorted(path.name for path in (tmp_path / "out" / "A_b").iterdir()) == [
            "red1-2.png",
            "red1.png",
        ]
        corrections.split(second, [2], "a:B")
        assert len(faces_by_label(second)) == 2, identity
        export_folders(second, tmp_path / "out2")
        assert {path.name for path in (tmp_path / "out2").iterdir()} == {"A_b", "a_B-2"}
