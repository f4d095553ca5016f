"""Readers of photos and of the metadata in and beside them."""

from functools import partial
from pathlib import Path

from fuzzing.mutators import XML_TOKENS, bytes_mutator, repair_png, token_mutator
from fuzzing.reader import Read, Reader, unchanged

MAX_PIXELS = 4_000_000
PICASA = b"""[Contacts2]
8e62398ebda8c1a5=Mia;;
[beach.jpg]
faces=rect64(3f845bcb59418507),8e62398ebda8c1a5;rect64(1),ffffffffffffffff
backuphash=1
"""
NAMES = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:mwg-rs="http://www.metadataworkinggroup.com/schemas/regions/" xmlns:lr="http://ns.adobe.com/lightroom/1.0/"
 xmlns:stArea="http://ns.adobe.com/xmp/sType/Area#" xmlns:stDim="http://ns.adobe.com/xap/1.0/sType/Dimensions#"
 xmlns:MP="http://ns.microsoft.com/photo/1.2/" xmlns:MPRI="http://ns.microsoft.com/photo/1.2/t/RegionInfo#"
 xmlns:MPReg="http://ns.microsoft.com/photo/1.2/t/Region#" xmlns:xmpNote="http://ns.adobe.com/xmp/note/"
 xmpNote:HasExtendedXMP="0123456789ABCDEF0123456789ABCDEF">
<dc:subject><rdf:Bag><rdf:li>beach</rdf:li></rdf:Bag></dc:subject><lr:hierarchicalSubject/>
<mwg-rs:Regions rdf:parseType="Resource">
 <mwg-rs:AppliedToDimensions stDim:w="4000" stDim:h="3000" stDim:unit="pixel"/>
 <mwg-rs:RegionList><rdf:Bag>
  <rdf:li rdf:parseType="Resource"><mwg-rs:Name>Bob</mwg-rs:Name><mwg-rs:Type>Face</mwg-rs:Type>
   <mwg-rs:Area stArea:x="0.2" stArea:y="0.35" stArea:w="0.2" stArea:h="0.3" stArea:unit="normalized"/></rdf:li>
  <rdf:li><rdf:Description mwg-rs:Name="Rex" mwg-rs:Type="Pet">
   <mwg-rs:Area stArea:x="0.7" stArea:y="0.8" stArea:w="0.1" stArea:h="0.1" stArea:unit="normalized"/>
  </rdf:Description></rdf:li>
 </rdf:Bag></mwg-rs:RegionList></mwg-rs:Regions>
<MP:RegionInfo><rdf:Description><MPRI:Regions><rdf:Bag>
 <rdf:li MPReg:Rectangle="0.6,0.2,0.2,0.3" MPReg:PersonDisplayName="Tom"/>
</rdf:Bag></MPRI:Regions></rdf:Description></MP:RegionInfo>
</rdf:Description></rdf:RDF></x:xmpmeta>"""


def _prepare_photo(folder: Path) -> Read:
    from familiar.photos.decoding import decode_photo, load_photo, read_header, read_metadata
    from familiar.photos.exif import capture_time

    load_photo(_small_photo(folder))  # Pillow's plugins

    def read(data: bytes) -> None:
        path = folder / "photo"
        path.write_bytes(data)
        capture_time(path)
        for each in (read_header, partial(read_metadata, max_pixels=MAX_PIXELS)):
            try:
                each(data, "photo")
            except _refusals():  # each of the three sees every input
                continue
        decode_photo(data, "photo", min_side_px=20 if len(data) % 2 else None, max_pixels=MAX_PIXELS)

    return read


def _refusals() -> type[Exception]:
    from familiar.core.errors import UnreadablePhoto

    return UnreadablePhoto


def _small_photo(folder: Path) -> Path:
    from support.valid_photos import valid_photos

    path = folder / "small.png"
    path.write_bytes(valid_photos()["png"])
    return path


def _photos(*prefixes: str) -> list[bytes]:
    from support.valid_photos import HEIC_FOLDER, valid_photos

    if prefixes == ("heic",):
        return [path.read_bytes() for path in sorted(HEIC_FOLDER.glob("*.heic"))]
    return [data for name, data in valid_photos().items() if name.startswith(prefixes)]


def _prepare_xmp(_: Path) -> Read:
    from familiar.core.types import Box
    from familiar.integrations.xmp.packet import add_names, has_names, read_regions
    from familiar.integrations.xmp.regions import Region

    regions = [Region(Box(0.1, 0.2, 0.3, 0.5), "Mia"), Region(Box(0.6, 0.2, 0.8, 0.5), "Tom")]

    def read(data: bytes) -> None:
        read_regions(data, (4000, 3000))
        has_names(data)
        changed = add_names(data, regions, (4000, 3000))
        assert changed is not None
        read_regions(changed, (4000, 3000))  # what is written can be read
        add_names(changed, [], (4000, 3000), base=data)

    return read


def _prepare_sidecars(folder: Path) -> Read:
    """A photo's packets, its sidecar and Picasa's file, as `familiar gallery import --from-metadata` reads them."""
    from familiar.integrations.xmp import picasa
    from familiar.integrations.xmp.content import PhotoContent
    from familiar.integrations.xmp.sidecars import read_limited
    from familiar.photos.decoding import read_metadata, read_photo_bytes

    sidecar = folder / "photo.jpg.xmp"

    def read(data: bytes) -> None:
        picasa.read_picasa_ini(data)
        sidecar.write_bytes(data)
        read_limited(sidecar)
        path = folder / "photo.jpg"
        path.write_bytes(data)
        data = read_photo_bytes(path)
        content = PhotoContent(data, read_metadata(data, path))
        assert all(isinstance(packet, bytes) for packet in content.packets)

    return read


def _prepare_jpeg_packets(_: Path) -> Read:
    from familiar.integrations.xmp.jpeg import read_packets, replace_packet
    from support.jpeg_segments import differs_only_in_packet

    def read(data: bytes) -> None:
        read_packets(data)
        changed = replace_packet(data, NAMES)
        assert NAMES in read_packets(changed)
        assert differs_only_in_packet(data, changed)

    return read


def _jpegs_with_packets() -> list[bytes]:
    from familiar.integrations.xmp.jpeg import replace_packet

    jpegs = _photos("jpeg", "mpo")
    payload = b"http://ns.adobe.com/xmp/extension/\0" + b"0123456789ABCDEF0123456789ABCDEF" + bytes(8) + b"<x/>"
    extension = b"\xff\xe1" + (len(payload) + 2).to_bytes(2, "big") + payload
    first = replace_packet(jpegs[0], NAMES)
    return [*jpegs, first, first[:2] + extension + first[2:]]


_xml = token_mutator(XML_TOKENS)
_FORMATS = ("jpeg", "png", "gif", "webp", "tiff", "bmp", "avif", "heic")

READERS = {
    **{
        f"photo-{name}": Reader(
            _prepare_photo,
            partial(_photos, *(("jpeg", "mpo") if name == "jpeg" else ("png", "apng") if name == "png" else (name,))),
            bytes_mutator,
            repair_png if name == "png" else unchanged,
        )
        for name in _FORMATS
    },
    "photo-ppm": Reader(_prepare_photo, partial(_photos, "ppm", "pgm", "pbm"), bytes_mutator),
    "xmp": Reader(_prepare_xmp, lambda: [NAMES], _xml),
    "jpeg-packets": Reader(_prepare_jpeg_packets, _jpegs_with_packets, bytes_mutator),
    "photo-metadata": Reader(_prepare_sidecars, lambda: [PICASA, *_jpegs_with_packets()], bytes_mutator),
}
