"""Face regions and person keywords in XMP packets."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadMetadata
from familiar.core.terminal_text import printable
from familiar.core.types import Box
from familiar.integrations.xmp.packet import add_names, has_added_names, read_regions
from familiar.integrations.xmp.regions import Region

SIZE_PX = (4000, 3000)
RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
DC = "{http://purl.org/dc/elements/1.1/}"
DIGIKAM = "{http://www.digikam.org/ns/1.0/}"
LR = "{http://ns.adobe.com/lightroom/1.0/}"
MIA = Region(Box(0.1, 0.2, 0.3, 0.5), "Mia")
TOM = Region(Box(0.6, 0.2, 0.8, 0.5), "Tom")

# As in the guidelines of the Metadata Working Group, in the three ways that RDF has for a structure.
MWG = b"""<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Other 1.0">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:crs="http://ns.adobe.com/camera-raw/1/"
    xmp:Rating="5" crs:ToneCurve="0, 0&#10;255, 255"/>
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:mwg-rs="http://www.metadataworkinggroup.com/schemas/regions/"
    xmlns:stArea="http://ns.adobe.com/xmp/sType/Area#" xmlns:stDim="http://ns.adobe.com/xap/1.0/sType/Dimensions#">
   <dc:subject><rdf:Bag><rdf:li>beach</rdf:li><rdf:li>Tom</rdf:li></rdf:Bag></dc:subject>
   <mwg-rs:Regions rdf:parseType="Resource">
    <mwg-rs:AppliedToDimensions stDim:w="4000" stDim:h="3000" stDim:unit="pixel"/>
    <mwg-rs:RegionList>
     <rdf:Bag>
      <rdf:li rdf:parseType="Resource">
       <mwg-rs:Area stArea:x="0.2" stArea:y="0.35" stArea:w="0.2" stArea:h="0.3" stArea:unit="normalized"/>
       <mwg-rs:Name>Bob</mwg-rs:Name>
       <mwg-rs:Type>Face</mwg-rs:Type>
      </rdf:li>
      <rdf:li>
       <rdf:Description mwg-rs:Name="Rex" mwg-rs:Type="Pet">
        <mwg-rs:Area stArea:x="0.7" stArea:y="0.8" stArea:w="0.1" stArea:h="0.1" stArea:unit="normalized"/>
       </rdf:Description>
      </rdf:li>
      <rdf:li rdf:parseType="Resource">
       <mwg-rs:Area stArea:x="0.5" stArea:y="0.5" stArea:d="0.1" stArea:unit="normalized"/>
       <mwg-rs:Type>Focus</mwg-rs:Type>
      </rdf:li>
     </rdf:Bag>
    </mwg-rs:RegionList>
   </mwg-rs:Regions>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>"""

# As Microsoft documents its "People Tagging" schema.
MICROSOFT = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
 <rdf:Description rdf:about="" xmlns:MP="http://ns.microsoft.com/photo/1.2/"
   xmlns:MPRI="http://ns.microsoft.com/photo/1.2/t/RegionInfo#"
   xmlns:MPReg="http://ns.microsoft.com/photo/1.2/t/Region#">
  <MP:RegionInfo><rdf:Description><MPRI:Regions><rdf:Bag>
   <rdf:li><rdf:Description MPReg:Rectangle="0.1, 0.2, 0.2, 0.3" MPReg:PersonDisplayName="Bob"/></rdf:li>
   <rdf:li MPReg:Rectangle="0.6,0.2,0.2,0.3" MPReg:PersonEmailDigest="x"/>
   <rdf:li MPReg:PersonDisplayName="without a box"/>
  </rdf:Bag></MPRI:Regions></rdf:Description></MP:RegionInfo>
 </rdf:Description></rdf:RDF></x:xmpmeta>"""


NO_LIST = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/" rdf:about=""><dc:subject/></rdf:Description></rdf:RDF>"""


def names_and_boxes(regions: Sequence[Region]) -> list[tuple[str, str, tuple[float, ...]]]:
    return [(region.name, region.kind, tuple(round(side, 6) for side in region.box)) for region in regions]


def keywords(packet: bytes, tag: str) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(packet).findall(f".//{tag}/*/{RDF}li")]


def meaning(packet: bytes) -> str:
    """Write a packet so that equal ones are equal: without its wrapper, white space and the order of attributes."""
    packet = re.sub(rb"<\?xpacket .*?\?>", b"", packet)
    return ElementTree.canonicalize(packet.decode(), strip_text=True, rewrite_prefixes=True)


def add(packet: bytes | None, *regions: Region, base: bytes | None = None) -> bytes:
    changed = add_names(packet, regions, SIZE_PX, base)
    assert changed is not None
    return changed


def test_reads_mwg_regions_in_every_notation():
    assert names_and_boxes(read_regions(MWG, SIZE_PX)) == [
        ("Bob", "Face", (0.1, 0.2, 0.3, 0.5)),
        ("Rex", "Pet", (0.65, 0.75, 0.75, 0.85)),
    ]


def test_ignores_regions_of_other_things():
    focus = MWG.replace(b'stArea:d="0.1"', b'stArea:w="0.1" stArea:h="0.1"')
    assert focus != MWG
    assert [region.name for region in read_regions(focus, SIZE_PX)] == ["Bob", "Rex"]


def test_reads_microsoft_regions():
    assert names_and_boxes(read_regions(MICROSOFT, SIZE_PX)) == [
        ("Bob", "Face", (0.1, 0.2, 0.3, 0.5)),
        ("", "Face", (0.6, 0.2, 0.8, 0.5)),
    ]


def test_new_packet_has_regions_and_keywords():
    packet = add(None, MIA, TOM)
    assert names_and_boxes(read_regions(packet, SIZE_PX)) == names_and_boxes([MIA, TOM])
    assert keywords(packet, f"{DC}subject") == ["Mia", "Tom"]
    assert keywords(packet, f"{DIGIKAM}TagsList") == ["People/Mia", "People/Tom"]
    assert keywords(packet, f"{LR}hierarchicalSubject") == ["People|Mia", "People|Tom"]


name = st.text(min_size=1, max_size=30).map(str.strip).filter(lambda name: bool(name) and printable(name) == name)
side = st.integers(0, 9)


@given(st.lists(st.tuples(side, side, name, st.sampled_from(["Face", "Pet"])), max_size=6, unique_by=lambda r: r[:2]))
def test_any_regions_are_read_back(drawn: list[tuple[int, int, str, str]]):
    regions = [Region(Box(x / 10, y / 10, (x + 1) / 10, (y + 1) / 10), name, kind) for x, y, name, kind in drawn]
    for packet in (None, MICROSOFT):
        changed = add_names(packet, regions, SIZE_PX)
        assert (changed is packet) == (not regions)
        if changed is not None and changed is not packet:
            written = names_and_boxes(read_regions(changed, SIZE_PX))
            assert written[: len(regions)] == names_and_boxes(regions)
            assert add_names(changed, regions, SIZE_PX) is changed
            restored = add_names(changed, [], SIZE_PX)
            assert (restored and meaning(restored)) == (packet and meaning(packet))


def test_renames_regions_of_other_programs_and_keeps_their_data():
    packet = add(MWG, MIA, TOM)
    assert names_and_boxes(read_regions(packet, SIZE_PX)) == [
        ("Mia", "Face", MIA.box),
        ("Rex", "Pet", (0.65, 0.75, 0.75, 0.85)),
        ("Tom", "Face", TOM.box),
    ]
    assert keywords(packet, f"{DC}subject") == ["beach", "Tom", "Mia"]
    assert b'crs:ToneCurve="0, 0&#10;255, 255"' in packet
    assert b'x:xmptk="Other 1.0"' in packet
    assert b"<mwg-rs:Type>Focus</mwg-rs:Type>" in packet
    assert packet.startswith(b"<?xpacket begin=")
    assert packet.endswith(b'<?xpacket end="w"?>')


@pytest.mark.parametrize("packet", [MWG, MICROSOFT], ids=["mwg", "microsoft"])
def test_taking_names_back_restores_the_packet(packet: bytes):
    changed = add(add(add(packet, MIA, TOM), TOM), MIA, Region(Box(0.4, 0.4, 0.5, 0.5), "Ann"))
    assert has_added_names(changed)
    restored = add(changed)
    assert not has_added_names(restored)
    assert meaning(restored) == meaning(packet)


def test_renames_microsoft_region_with_the_mwg_region():
    assert {region.name for region in read_regions(add(MICROSOFT, MIA), SIZE_PX)} == {"Mia", ""}


def test_changed_name_replaces_region_and_keywords():
    packet = add(add(None, MIA, TOM), Region(MIA.box, "Mia Müller"), TOM)
    assert [region.name for region in read_regions(packet, SIZE_PX)] == ["Mia Müller", "Tom"]
    assert keywords(packet, f"{DIGIKAM}TagsList") == ["People/Mia Müller", "People/Tom"]


def test_separators_in_names_make_no_levels_of_keywords():
    packet = add(None, Region(MIA.box, "AC/DC | live"))
    assert read_regions(packet, SIZE_PX)[0].name == "AC/DC | live"
    assert keywords(packet, f"{DIGIKAM}TagsList") == ["People/AC_DC | live"]
    assert keywords(packet, f"{LR}hierarchicalSubject") == ["People|AC/DC _ live"]
    assert add_names(packet, [], SIZE_PX) is None


def test_keywords_of_other_programs_stay_when_a_name_goes():
    assert keywords(add(add(MWG, TOM)), f"{DC}subject") == ["beach", "Tom"]


def test_packet_without_any_name_or_data_vanishes():
    assert add_names(add(None, MIA), [], SIZE_PX) is None
    assert add_names(None, [], SIZE_PX) is None
    assert add_names(MWG, [], SIZE_PX) is MWG


def test_new_sidecar_begins_with_the_lists_of_the_photo():
    sidecar = add(None, MIA, base=MWG)
    assert [region.name for region in read_regions(sidecar, SIZE_PX)] == ["Mia", "Rex"]
    assert keywords(sidecar, f"{DC}subject") == ["beach", "Tom", "Mia"]
    assert b"Rating" not in sidecar
    assert add_names(sidecar, [MIA], SIZE_PX, MWG) is sidecar
    assert add_names(sidecar, [], SIZE_PX) is None


def test_regions_of_a_cropped_photo_are_refused():
    for size_px in ((4000, 3000), (3000, 4000), (400, 300), (401, 300)):
        read_regions(MWG, size_px)
    with pytest.raises(BadMetadata, match="cropped"):
        read_regions(MWG, (3000, 3000))
    with pytest.raises(BadMetadata, match="cropped"):
        add_names(MWG, [MIA], (3000, 3000))


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"<a/>", "not XMP"),
        (b"<!DOCTYPE a><a/>", "entities"),
        (NO_LIST.replace(b"<dc:subject/>", b"<dc:subject>beach</dc:subject>"), "list"),
        (NO_LIST.replace(b"<dc:subject/>", b"").replace(b'rdf:about=""', b'dc:subject="beach"'), "list"),
    ],
)
def test_rejects_packets_that_names_cannot_be_added_to(content: bytes, cause: str):
    with pytest.raises(BadMetadata, match=cause):
        add_names(content, [MIA], SIZE_PX)


def test_empty_list_is_filled():
    assert keywords(add(NO_LIST, MIA), f"{DC}subject") == ["Mia"]


@given(st.binary(max_size=60), st.integers(0, len(MWG)))
def test_mutated_packets_are_read_or_refused(noise: bytes, start: int):
    content = MWG[:start] + noise + MWG[start + len(noise) :]
    for call in (lambda: read_regions(content, SIZE_PX), lambda: add_names(content, [MIA], SIZE_PX)):
        try:
            call()
        except BadMetadata:
            continue
