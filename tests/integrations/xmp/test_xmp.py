"""Names exported to photos' metadata and imported from it."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Box, Face, Photo
from familiar.embedding.embedder import Embedder
from familiar.gallery import Gallery
from familiar.gallery.edits.corrections import Individual, assign, name_identity
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store.photos import Photos
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from familiar.integrations.xmp import export as xmp_export
from familiar.integrations.xmp.export import XmpExportResult, export_xmp
from familiar.integrations.xmp.import_names import import_xmp
from familiar.integrations.xmp.jpeg import read_packets
from familiar.integrations.xmp.packet import add_names, read_regions
from familiar.integrations.xmp.rdf import MARKER_URI
from familiar.integrations.xmp.regions import Region
from familiar.photos.decoding import load_photo
from support.color_album import RGB_U8
from support.jpeg_segments import differs_only_in_packet

SQUARE_PX = 40
# Of each face: its color, and its box in the upright photo of 200 x 120 px. No symmetry hides a wrong turn.
FACES = {"red": (10, 20, 50, 60), "green": (100, 70, 140, 110), "blue": (150, 5, 190, 45)}
SIZE_PX = (200, 120)
NAMES = {"red": "Zoë Müller", "green": "ミア & <Tom>", "blue": "قطة"}
OTHER = b"""<?xpacket begin="\xef\xbb\xbf" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="adobe:ns:meta/" \
xmlns:xmp="http://ns.adobe.com/xap/1.0/"><rdf:RDF>
<rdf:Description rdf:about="" xmp:Rating="5" /></rdf:RDF></x:xmpmeta>
<?xpacket end="w"?>"""
TURN_TO_STORE = {  # of each EXIF orientation: how an upright picture is stored
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: pixels.transpose(1, 0, 2)[::-1],
    7: lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2),
    8: lambda pixels: pixels.transpose(1, 0, 2)[:, ::-1],
}


class ColorDetector:
    """A detector that returns the box of each color that a photo shows."""

    def detect(self, photo: Photo) -> list[Face]:
        detections: list[Face] = []
        for rgb in RGB_U8.values():
            near = np.abs(photo.rgb_u8.astype(int) - rgb).max(axis=2) < 60
            rows, columns = np.nonzero(near)
            if len(rows) > 100:
                left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
                detections.append(Face((float(left), float(top), float(right), float(bottom)), None, 1.0))
        return detections


def draw(path: Path, *colors: str, orientation: int = 1, shade: int = 0, xmp: bytes | None = None) -> Path:
    """Draw and save a photo that shows the faces of some colors, stored with an orientation."""
    pixels = np.zeros((SIZE_PX[1], SIZE_PX[0], 3), np.uint8)
    for color in colors:
        left, top, right, bottom = FACES[color]
        chessboard = np.indices((bottom - top, right - left)).sum(axis=0)[..., None] // 4 % 2 * 20
        pixels[top:bottom, left:right] = np.array(RGB_U8[color]) + chessboard + shade
    exif = Image.Exif()
    exif[0x0112] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"xmp": xmp} if xmp else {}
    stored = Image.fromarray(np.ascontiguousarray(TURN_TO_STORE[orientation](pixels)))
    stored.save(path, exif=exif, quality=95, **options)
    return path


def create(folder: Path, bundle: Path, *photos: Path) -> Store:
    embedder = Embedder(bundle, threads=1)
    gallery = Store.create(folder, Space.from_metadata(embedder.metadata))
    enroll(gallery, embedder, photos, ColorDetector())
    return gallery


def color_of(box: tuple[float, ...]) -> str:
    return next(color for color, sides in FACES.items() if np.abs(np.subtract(sides, box)).max() < 5)


def face_rows(gallery: Store) -> list[tuple[int, str, str]]:
    """Return number, file name and color of each face."""
    with gallery.read() as repository:
        rows = repository.connection.rows(
            "SELECT faces.id, CAST(path AS TEXT), left_px, top_px, right_px, bottom_px FROM faces "
            "JOIN photos ON photos.id = photo_id ORDER BY faces.id"
        )
    return [(row[0], Path(row[1]).name, color_of(row[2:])) for row in rows]


def give_names(gallery: Store, **names: str) -> None:
    """Name the faces of each color, all of `NAMES` without arguments."""
    rows = face_rows(gallery)
    faces = {
        name: tuple(face for face, _, face_color in rows if face_color == color)
        for color, name in (names or NAMES).items()
    }
    assign(gallery, [Individual(name, numbers) for name, numbers in faces.items() if numbers])


def names_of(gallery: Store) -> dict[tuple[str, str], str]:
    """Return the name of each face, by file name and color."""
    assignments = load_assignments(gallery)
    identity = dict(zip(assignments.faces.ids.tolist(), assignments.identity.tolist(), strict=True))
    return {
        (path, color): assignments.names[identity[face]]
        for face, path, color in face_rows(gallery)
        if identity[face] in assignments.names
    }


def written(sidecar: Path, size_px: tuple[int, int] = SIZE_PX) -> dict[str, str]:
    """Return the names in a sidecar of an upright photo, by color."""
    width, height = size_px
    return {
        color_of(tuple(np.multiply(region.box, (width, height, width, height)))): region.name
        for region in read_regions(sidecar.read_bytes(), size_px)
    }


def sidecar_of(*named: tuple[str, str]) -> bytes:
    regions = [Region(Box(*np.divide(FACES[color], (200, 120, 200, 120)).tolist()), name) for color, name in named]
    packet = add_names(None, regions, SIZE_PX)
    assert packet is not None
    return packet


def counts(result: XmpExportResult) -> tuple[int, int, int, int]:
    return result.faces, result.sidecars, result.jpegs, result.removed


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    return draw(tmp_path / "photos" / "a.jpg", "red", "green")


@pytest.fixture
def sidecar(photo: Path) -> Path:
    return photo.with_name("a.jpg.xmp")


@pytest.fixture
def gallery(tmp_path: Path, mean_color_bundle: Path, photo: Path) -> Iterator[Store]:
    with create(tmp_path / "gallery", mean_color_bundle, photo) as gallery:
        yield gallery


@pytest.mark.parametrize("in_place", [False, True], ids=["sidecars", "in place"])
def test_round_trip_of_every_orientation(tmp_path: Path, mean_color_bundle: Path, in_place: bool):
    photos = [
        draw(tmp_path / "photos" / f"{orientation}.jpg", *FACES, orientation=orientation, shade=orientation)
        for orientation in range(1, 9)
    ]
    photos.append(draw(tmp_path / "photos" / "6.png", *FACES, orientation=6, shade=9))
    pixels = [load_photo(photo).rgb_u8 for photo in photos]
    with create(tmp_path / "gallery", mean_color_bundle, *photos) as gallery:
        give_names(gallery)
        before = names_of(gallery)
        assert len(before) == 27
        result = export_xmp(Gallery(gallery), in_place=in_place)
        assert counts(result) == ((27, 1, 8, 0) if in_place else (27, 9, 0, 0))
        assert (result.photos, result.skipped, result.not_in_place) == (9, (), ())
        assert counts(export_xmp(Gallery(gallery), in_place=in_place)) == (27, 0, 0, 0)
        assert check(gallery).changed == ()
    assert all(np.array_equal(load_photo(photo).rgb_u8, shown) for photo, shown in zip(photos, pixels, strict=True))
    with create(tmp_path / "fresh", mean_color_bundle, *photos) as fresh:
        result = import_xmp(Gallery(fresh))
        assert (result.faces, result.identities, result.skipped) == (27, 3, ())
        assert names_of(fresh) == before


def test_undo_and_repeated_export_restore_former_names(gallery: Store, sidecar: Path):
    give_names(gallery, red="Mia", green="Tom")
    export_xmp(Gallery(gallery))
    content = sidecar.read_bytes()
    name_identity(gallery, 1, "Mia Müller")
    export_xmp(Gallery(gallery))
    assert written(sidecar) == {"red": "Mia Müller", "green": "Tom"}
    undo(gallery)
    export_xmp(Gallery(gallery))
    assert sidecar.read_bytes() == content
    undo(gallery)
    assert counts(export_xmp(Gallery(gallery))) == (0, 0, 0, 1)
    assert not sidecar.exists()


@pytest.mark.parametrize("name", ["a.jpg.xmp", "a.jpg.XMP", "a.xmp"])  # the last as Lightroom has it
def test_data_of_other_programs_stay_in_sidecars(gallery: Store, photo: Path, name: str):
    sidecar = photo.with_name(name)
    sidecar.write_bytes(OTHER)
    sidecar.chmod(0o640)
    give_names(gallery)
    assert export_xmp(Gallery(gallery)).sidecars == 1
    assert written(sidecar) == {"red": NAMES["red"], "green": NAMES["green"]}
    assert sorted(path.name for path in photo.parent.iterdir()) == ["a.jpg", name]
    assert b'xmp:Rating="5"' in sidecar.read_bytes()
    assert sidecar.stat().st_mode & 0o777 == 0o640
    undo(gallery)
    assert counts(export_xmp(Gallery(gallery))) == (0, 1, 0, 0)
    assert sidecar.read_bytes() == OTHER


def test_in_place_keeps_pixels_metadata_and_the_gallery(mean_color_bundle: Path, gallery: Store, photo: Path):
    photo.chmod(0o640)
    before = photo.read_bytes()
    give_names(gallery)
    assert counts(export_xmp(Gallery(gallery), in_place=True)) == (2, 0, 1, 0)
    data = photo.read_bytes()
    assert differs_only_in_packet(before, data)
    assert read_packets(data)
    assert photo.stat().st_mode & 0o777 == 0o640
    assert list(photo.parent.iterdir()) == [photo]
    result = enroll(gallery, Embedder(mean_color_bundle, threads=1), [photo], ColorDetector())
    assert (result.known, result.edited, result.photos) == (1, 0, 0)
    undo(gallery)
    assert counts(export_xmp(Gallery(gallery), in_place=True)) == (0, 0, 1, 0)
    assert photo.read_bytes() == before


def test_photo_stays_known_if_the_process_dies_before_the_gallery_is_updated(
    mean_color_bundle: Path, gallery: Store, photo: Path, monkeypatch: pytest.MonkeyPatch
):
    give_names(gallery)
    before = face_rows(gallery), names_of(gallery)
    with monkeypatch.context() as patched:
        patched.setattr(Photos, "update_content", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            export_xmp(Gallery(gallery), in_place=True)
    assert read_packets(photo.read_bytes())
    assert "has changed since it was enrolled" in export_xmp(Gallery(gallery), in_place=True).skipped[0]
    result = enroll(gallery, Embedder(mean_color_bundle, threads=1), [photo], ColorDetector())
    assert (result.edited, result.photos) == (1, 0)
    assert (face_rows(gallery), names_of(gallery)) == before
    assert counts(export_xmp(Gallery(gallery), in_place=True)) == (2, 0, 0, 0)


def test_photo_that_another_program_changes_meanwhile_stays_as_it_is(
    gallery: Store, photo: Path, monkeypatch: pytest.MonkeyPatch
):
    give_names(gallery)
    monkeypatch.setattr(xmp_export, "content_sha256", lambda _: b"another")
    (reason,) = export_xmp(Gallery(gallery), in_place=True).skipped
    assert "changed meanwhile by another program" in reason
    assert read_packets(photo.read_bytes()) == []


def test_in_place_also_changes_an_earlier_sidecar(gallery: Store, sidecar: Path):
    give_names(gallery, red="Mia")
    export_xmp(Gallery(gallery))
    name_identity(gallery, 1, "Ann")
    assert counts(export_xmp(Gallery(gallery), in_place=True)) == (1, 1, 1, 0)
    assert written(sidecar) == {"red": "Ann"}


def test_in_place_writes_a_sidecar_where_a_jpeg_cannot_be_changed(tmp_path: Path, mean_color_bundle: Path):
    photo = draw(tmp_path / "a.jpg", "red")
    data = photo.read_bytes()
    photo.write_bytes(data[:2] + b"\xff\xe2\x00\x06MPF\0" + data[2:])
    before = photo.read_bytes()
    with create(tmp_path / "gallery", mean_color_bundle, photo) as gallery:
        give_names(gallery)
        result = export_xmp(Gallery(gallery), in_place=True)
    assert counts(result) == (1, 1, 0, 0)
    assert result.not_in_place == (f"{photo}: contains several pictures, whose table would become wrong",)
    assert photo.read_bytes() == before


def test_a_copy_that_is_equal_already_is_not_overwritten(tmp_path: Path, mean_color_bundle: Path, photo: Path):
    with create(tmp_path / "gallery", mean_color_bundle, photo) as gallery:
        give_names(gallery, red="Mia")
        original = photo.read_bytes()
        export_xmp(Gallery(gallery), in_place=True)
        tagged = photo.read_bytes()
        (photo.parent / "b.jpg").write_bytes(original)
        enroll(gallery, Embedder(mean_color_bundle, threads=1), [photo.parent / "b.jpg"], ColorDetector())
        red = next(face for face, path, color in face_rows(gallery) if (path, color) == ("b.jpg", "red"))
        assign(gallery, [Individual("Mia", (red,))])
        result = export_xmp(Gallery(gallery), in_place=True)
    assert "would become equal to another photo" in result.skipped[0]
    assert photo.read_bytes() == tagged
    assert (photo.parent / "b.jpg").read_bytes() == original


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda path: path.write_bytes(b"no XML"), "not valid XML"),
        (lambda path: path.write_bytes(b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'), "entities"),
        (lambda path: path.write_bytes(b"<a/>"), "not XMP"),
        (lambda path: path.write_bytes(b"<a/>" + b" " * 2**24), "more than the limit"),
        (os.mkfifo, "a folder or a special file"),
        (Path.mkdir, "a folder or a special file"),
    ],
)
def test_bad_sidecars_are_named_and_left_untouched(
    gallery: Store, sidecar: Path, make: Callable[[Path], object], cause: str
):
    make(sidecar)
    content = sidecar.read_bytes() if sidecar.is_file() else None
    give_names(gallery)
    for result in (export_xmp(Gallery(gallery)), import_xmp(Gallery(gallery))):
        (reason,) = result.skipped
        assert str(sidecar) in reason
        assert cause in reason
    assert (sidecar.read_bytes() if sidecar.is_file() else None) == content


def test_special_files_in_place_of_photos_and_tables_are_named(gallery: Store, photo: Path):
    give_names(gallery)
    table = photo.with_name(".picasa.ini")
    os.mkfifo(table)
    (reason,) = import_xmp(Gallery(gallery)).skipped
    assert reason.startswith(f"{table}: ")
    photo.unlink()
    os.mkfifo(photo)
    assert "special file" in export_xmp(Gallery(gallery), in_place=True).skipped[-1]


def test_missing_changed_and_protected_photos_are_skipped(
    tmp_path: Path, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    photos = [draw(tmp_path / f"{color}.jpg", color) for color in FACES]
    with create(tmp_path / "gallery", mean_color_bundle, *photos) as gallery:
        give_names(gallery)
        photos[0].unlink()
        draw(photos[1], "green", shade=30)
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
        result = export_xmp(Gallery(gallery), in_place=True)
        blue, green, red = result.skipped
        assert result.jpegs == 0
        assert "write-protected" in blue
        assert "has changed since it was enrolled" in green
        assert "No such file" in red
        assert len(import_xmp(Gallery(gallery)).skipped) == 2
        with pytest.raises(UnreadablePhoto, match="no such file"):
            import_xmp(Gallery(gallery), [tmp_path / "missing"])


@pytest.mark.parametrize("by_this_program", [False, True])
def test_new_sidecar_repeats_regions_of_other_programs_in_the_photo(
    tmp_path: Path, mean_color_bundle: Path, by_this_program: bool
):
    packet = sidecar_of(("blue", "Bob"))
    if not by_this_program:
        packet = packet.replace(MARKER_URI.encode(), b"urn:another-program:1.0/")
    photo = draw(tmp_path / "a.jpg", "red", "blue", xmp=packet)
    with create(tmp_path / "gallery", mean_color_bundle, photo) as gallery:
        give_names(gallery, red="Mia")
        export_xmp(Gallery(gallery))
    assert written(tmp_path / "a.jpg.xmp") == {"red": "Mia"} | ({} if by_this_program else {"blue": "Bob"})


def test_reads_microsoft_picasa_and_embedded_regions(tmp_path: Path, mean_color_bundle: Path):
    shares = {
        color: (left / 200, top / 120, right / 200, bottom / 120) for color, (left, top, right, bottom) in FACES.items()
    }
    left, top, right, bottom = shares["green"]
    microsoft = f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description
      xmlns:MP="http://ns.microsoft.com/photo/1.2/" xmlns:MPRI="http://ns.microsoft.com/photo/1.2/t/RegionInfo#"
      xmlns:MPReg="http://ns.microsoft.com/photo/1.2/t/Region#"><MP:RegionInfo rdf:parseType="Resource">
      <MPRI:Regions><rdf:Bag><rdf:li MPReg:PersonDisplayName="Grün"
      MPReg:Rectangle="{left}, {top}, {right - left}, {bottom - top}"/></rdf:Bag></MPRI:Regions></MP:RegionInfo>
      </rdf:Description></rdf:RDF>"""
    photo = draw(tmp_path / "A.JPG", *FACES, xmp=microsoft.encode())
    rect = "".join(f"{round(share * 65535):04x}" for share in shares["red"]).lstrip("0")
    (tmp_path / ".picasa.ini").write_text(
        f"[Contacts2]\n12ab=Rot;;\n[A.JPG]\nfaces=rect64({rect}),12ab;rect64(1),ffffffffffffffff;rect64(2),99\n"
    )
    mwg = add_names(None, [Region(Box(*shares["blue"]), "Blau")], SIZE_PX)
    assert mwg is not None
    (tmp_path / "A.JPG.xmp").write_bytes(mwg)
    with create(tmp_path / "gallery", mean_color_bundle, photo) as gallery:
        result = import_xmp(Gallery(gallery), [tmp_path])
        assert {color: name for (_, color), name in names_of(gallery).items()} == {
            "red": "Rot",
            "green": "Grün",
            "blue": "Blau",
        }
        assert len(result.skipped) == 1
        assert "contact whose name" in result.skipped[0]


@pytest.mark.parametrize(
    ("named", "imported", "cause"),
    [
        ([("red", "Mia"), ("blue", "Tom")], {"red": "Mia"}, "a.jpg: Tom: its region in a.jpg.xmp matches no face"),
        ([("red", "Mia"), ("blue", "Mia")], {"red": "Mia"}, "a.jpg: Mia: its region in a.jpg.xmp matches no face"),
        ([("red", "Mia"), ("green", "#7")], {"red": "Mia"}, "a.jpg.xmp: '#7' is not a valid name"),
        ([("red", "Mia"), ("red", "Tom")], {"red": "Mia"}, "a.jpg: Tom: its region in a.jpg.xmp matches no face"),
    ],
)
def test_import_skips_names_that_match_no_face_or_contradict(
    gallery: Store, sidecar: Path, named: list[tuple[str, str]], imported: dict[str, str], cause: str
):
    sidecar.write_bytes(sidecar_of(*named))
    result = import_xmp(Gallery(gallery))
    assert {color: name for (_, color), name in names_of(gallery).items()} == imported
    (reason,) = result.skipped
    assert cause in reason


def test_import_takes_every_spelling_of_a_name_as_the_same(gallery: Store, sidecar: Path):
    give_names(gallery, green="Jos\u00e9")
    sidecar.write_bytes(sidecar_of(("green", "\u200eJose\u0301\u00a0"), ("red", "\u5c71\u7530\u3000\u592a\u90ce")))
    assert import_xmp(Gallery(gallery)).skipped == ()
    assert names_of(gallery) == {("a.jpg", "green"): "Jos\u00e9", ("a.jpg", "red"): "\u5c71\u7530 \u592a\u90ce"}


def test_export_leaves_a_name_that_another_program_spells_otherwise(gallery: Store, sidecar: Path):
    others = add_names(None, [Region(Box(0.05, 0.16, 0.25, 0.5), "Jose\u0301")], SIZE_PX)
    assert others is not None
    sidecar.write_bytes(re.sub(rb"<familiar:(added\w*)[^>]*>.*?</familiar:\1>", b"", others, flags=re.DOTALL))
    give_names(gallery, red="Jos\u00e9")
    export_xmp(Gallery(gallery))
    assert written(sidecar) == {"red": "Jose\u0301"}
    assert sidecar.read_bytes().count("Jos\u00e9".encode()) == 0


def test_one_name_of_two_faces_survives_a_round_trip(gallery: Store, sidecar: Path):
    give_names(gallery, green="Mia")
    sidecar.write_bytes(sidecar_of(("red", "Mia")))
    assert import_xmp(Gallery(gallery)).skipped == ()
    twice = {("a.jpg", "green"): "Mia", ("a.jpg", "red"): "Mia"}
    assert names_of(gallery) == twice
    assert export_xmp(Gallery(gallery)).faces == 2
    undo(gallery)
    undo(gallery)
    assert import_xmp(Gallery(gallery)).faces == 2
    assert names_of(gallery) == twice
    assert [decision.kind for decision in decisions(gallery)] == ["import"]
    undo(gallery)
    assert names_of(gallery) == {}


def test_region_means_only_the_face_that_it_overlaps_most(gallery: Store, sidecar: Path):
    left, top, right, bottom = FACES["red"]
    red, green = (face for face, _, _ in face_rows(gallery))
    with gallery.write() as repository:  # the faces of two people who look over each other's shoulder
        repository.connection.execute(
            "UPDATE faces SET left_px = ?, top_px = ?, right_px = ?, bottom_px = ? WHERE id = ?",
            (left + 8, top, right + 8, bottom, green),
        )
    sidecar.write_bytes(sidecar_of(("red", "Mia")))
    assert import_xmp(Gallery(gallery)).faces == 1
    assignments = load_assignments(gallery)
    assert assignments.identity[assignments.faces.rows_of(np.array([red, green]))].tolist() == [1, -1]


@pytest.mark.parametrize(("species", "kind"), [(None, "Face"), ("person", "Face"), ("cat", "Pet")])
def test_faces_of_animals_are_regions_of_pets(tmp_path: Path, mean_color_bundle: Path, species: str | None, kind: str):
    photo = draw(tmp_path / "a.jpg", "red")
    embedder = Embedder(mean_color_bundle, threads=1)
    with Store.create(tmp_path / "gallery", Space.from_metadata(embedder.metadata)) as gallery:
        enroll(gallery, embedder, [photo], ColorDetector(), species=species)
        give_names(gallery)
        export_xmp(Gallery(gallery))
    assert [region.kind for region in read_regions((tmp_path / "a.jpg.xmp").read_bytes(), SIZE_PX)] == [kind]


def test_first_file_that_names_a_face_counts(gallery: Store, sidecar: Path, photo: Path):
    sidecar.write_bytes(sidecar_of(("red", "Mia")))
    photo.with_name("a.xmp").write_bytes(sidecar_of(("red", "Ann"), ("green", "Tom")))
    result = import_xmp(Gallery(gallery))
    assert names_of(gallery) == {("a.jpg", "red"): "Mia", ("a.jpg", "green"): "Tom"}
    assert result.skipped == (f"{photo}: Ann: a.xmp gives it to the face of Mia",)


def foreign_packet(packet: bytes, properties: str = "") -> bytes:
    """Return a packet as another program would have written it, with further properties."""
    attributes = f'rdf:about="" {properties}'
    packet = packet.replace(MARKER_URI.encode(), b"urn:another-program:1.0/")
    return packet.replace(b'rdf:about=""', attributes.strip().encode(), 1)


TURNED = 'xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="3"'


@pytest.mark.parametrize(
    ("name", "companions", "properties"),
    [
        ("a.xmp", "a.mov a.mp4 a.aae a.json a.thm", ""),  # a Live Photo, edited
        ("a.XMP", "", ""),
        ("A.JPG.Xmp", "a.heic", ""),
        ("a.xmp", "A.jpg", ""),
        ("a.xmp", "a.cr2", ""),
        ("a.CR2.xmp", "a.CR2", ""),
    ],
)
def test_reads_the_sidecar_of_a_photo_with_companions(
    gallery: Store, photo: Path, name: str, companions: str, properties: str
):
    for other in companions.split():
        photo.with_name(other).touch()
    photo.with_name(name).write_bytes(foreign_packet(sidecar_of(("red", "Mia")), properties))
    result = import_xmp(Gallery(gallery))
    assert result.skipped == ()
    assert names_of(gallery) == {("a.jpg", "red"): "Mia"}


@pytest.mark.parametrize(
    ("name", "companions", "properties", "cause"),
    [
        ("a.xmp", "a.heic", "", "may belong to a.heic or a.jpg; rename it a.heic.xmp or a.jpg.xmp"),
        ("a.xmp", "a.psd", "", "may belong to a.jpg or a.psd"),
        ("a.png.xmp", "", "", "belongs to a.png; if it is about a.jpg too, copy it to a.jpg.xmp"),
        ("a.xmp", "a.cr2", TURNED, "turned as this one; it belongs to a.cr2; if it is about a.jpg too, copy it to"),
    ],
)
def test_reports_a_sidecar_with_names_that_may_be_of_another_file(
    gallery: Store, photo: Path, name: str, companions: str, properties: str, cause: str
):
    for other in companions.split():
        photo.with_name(other).touch()
    sidecar = photo.with_name(name)
    sidecar.write_bytes(foreign_packet(sidecar_of(("red", "Mia")), properties))
    (reason,) = import_xmp(Gallery(gallery)).skipped
    assert reason.startswith(f"{sidecar}: ")
    assert cause in reason
    assert names_of(gallery) == {}
    sidecar.write_bytes(OTHER)
    assert import_xmp(Gallery(gallery)).skipped == (), "nothing is left out if the sidecar has no names"


@pytest.mark.parametrize("wh", [(120, 200), (200, 100)], ids=["turned", "cropped"])
def test_raw_sidecar_is_not_read_for_a_photo_of_other_proportions(gallery: Store, photo: Path, wh: tuple[int, int]):
    packet = add_names(None, [Region(Box(0.05, 0.16, 0.25, 0.5), "Mia")], wh)
    assert packet is not None
    photo.with_name("a.nef").touch()
    photo.with_name("a.xmp").write_bytes(foreign_packet(packet))
    assert "belongs to a.nef" in import_xmp(Gallery(gallery)).skipped[0]
    assert names_of(gallery) == {}


@pytest.mark.parametrize("other", ["a.cr2", "a.heic"])
def test_export_leaves_a_sidecar_that_may_be_of_another_file(gallery: Store, photo: Path, other: str):
    shared, other_sidecar = photo.with_name("a.xmp"), photo.with_name("a.jpg.xmp")
    before = foreign_packet(sidecar_of(("green", "Tom")))
    shared.write_bytes(before)
    give_names(gallery, red="Mia")
    export_xmp(Gallery(gallery))
    assert written(shared) == {"red": "Mia", "green": "Tom"}
    photo.with_name(other).touch()
    for _ in range(2):
        export_xmp(Gallery(gallery))
        assert shared.read_bytes() == before
        assert written(other_sidecar) == {"red": "Mia"}


def test_photo_with_a_name_too_long_for_a_sidecar_does_not_stop_the_export(tmp_path: Path, mean_color_bundle: Path):
    long = draw(tmp_path / ("a" * 251 + ".jpg"), "red")  # a name has 255 bytes
    other = draw(tmp_path / "b.jpg", "green")
    with create(tmp_path / "gallery", mean_color_bundle, long, other) as gallery:
        give_names(gallery)
        (reason,) = export_xmp(Gallery(gallery)).skipped
        assert reason == f"{long}.xmp: File name too long"
        assert written(tmp_path / "b.jpg.xmp") == {"green": NAMES["green"]}
        assert export_xmp(Gallery(gallery), in_place=True).skipped == import_xmp(Gallery(gallery)).skipped == ()


def test_files_of_picasa_are_read_in_any_case_with_any_separators(gallery: Store, photo: Path):
    for file, color, end, name in (
        (".Picasa.ini", "red", "\n", "Tom"),
        ("PICASA.INI", "green", "\r\n", "Jose\u0301\u2028Ruiz\u3000"),
    ):
        rect = "".join(f"{round(share * 65535):04x}" for share in np.divide(FACES[color], (200, 120, 200, 120)))
        content = ["[Contacts2]", f"12ab={name};;", "[A.JPG]", f"faces=rect64({rect}),12ab", ""]
        photo.with_name(file).write_bytes(end.join(content).encode())
    assert import_xmp(Gallery(gallery)).skipped == ()
    assert names_of(gallery) == {("a.jpg", "red"): "Tom", ("a.jpg", "green"): "Jos\u00e9 Ruiz"}


def test_folder_that_cannot_be_listed_is_named(gallery: Store, photo: Path, monkeypatch: pytest.MonkeyPatch):
    give_names(gallery)
    monkeypatch.setattr(os, "listdir", Mock(side_effect=PermissionError(13, "Permission denied")))
    for result in (export_xmp(Gallery(gallery)), import_xmp(Gallery(gallery))):
        (reason,) = result.skipped
        assert reason.startswith(f"{photo.parent}: cannot be listed (Permission denied)")


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs ExifTool: apt install libimage-exiftool-perl")
@pytest.mark.parametrize("orientation", [1, 6])
def test_exiftool_reads_what_was_written(tmp_path: Path, mean_color_bundle: Path, orientation: int):
    photo = draw(tmp_path / "a.jpg", "red", "green", orientation=orientation)
    with create(tmp_path / "gallery", mean_color_bundle, photo) as gallery:
        give_names(gallery)
        export_xmp(Gallery(gallery))
        export_xmp(Gallery(gallery), in_place=True)

    def exiftool(*arguments: object) -> str:
        command = ["exiftool", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8").stdout

    names = [NAMES["red"], NAMES["green"]]
    for file in (photo, tmp_path / "a.jpg.xmp"):
        assert "XMP" not in exiftool("-validate", "-warning", "-a", "-s3", file)
        for tag in ("RegionName", "Subject"):
            assert exiftool("-s3", "-sep", "; ", f"-{tag}", file).strip() == "; ".join(names)
        tags = exiftool("-s3", "-sep", "; ", "-TagsList", "-HierarchicalSubject", file).split("\n")
        assert tags[:2] == [
            "; ".join(f"People/{name}" for name in names),
            "; ".join(f"People|{name}" for name in names),
        ]
        x, y = (float(exiftool("-s3", "-sep", " ", f"-RegionArea{side}", file).split()[0]) for side in "XY")
        # Orientation 6: the stored photo is turned by 90 degrees, so x of it is y of the upright one.
        assert (x, y) == pytest.approx((30 / 200, 40 / 120) if orientation == 1 else (40 / 120, 1 - 30 / 200), abs=0.02)
    # Names are still known as this program's after ExifTool has written the files anew.
    exiftool("-q", "-overwrite_original", "-XMP-dc:Subject+=beach", "-XMP:Rating=4", photo, f"{photo}.xmp")
    for packet in (*read_packets(photo.read_bytes()), (tmp_path / "a.jpg.xmp").read_bytes()):
        restored = add_names(packet, [], SIZE_PX)
        assert restored is not None
        assert b"beach" in restored
        assert not any(name.split()[0].encode() in restored for name in names)


def test_names_of_a_replaced_photo_are_removed_from_the_sidecar(tmp_path: Path, mean_color_bundle: Path):
    photo = draw(tmp_path / "a.jpg", "red")
    with create(tmp_path / "gallery", mean_color_bundle, photo) as store:
        give_names(store)
        gallery = Gallery(store, Embedder(mean_color_bundle, threads=1))
        assert export_xmp(gallery).sidecars == 1
        draw(photo, "green")
        export = export_xmp(gallery)
        assert export.faces == 0
        assert "has changed since it was enrolled" in export.skipped[0]
        assert "has changed since it was enrolled" in import_xmp(gallery, [photo]).skipped[0]
        gallery.enroll(photo, ColorDetector())
        result = export_xmp(gallery)
    assert (result.removed, result.faces) == (1, 0)
    assert [error.partition(": ")[0] for error in result.skipped] == [f"{photo} (replaced, photo 1)"]
