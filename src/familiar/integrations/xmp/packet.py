"""Read and write the names of faces in XMP packets: face regions and person keywords. Pure functions on bytes.

Read are the regions of the Metadata Working Group (MWG, `mwg-rs:Regions`; digiKam, Lightroom, Picasa 3.9) and of
Microsoft (`MP:RegionInfo`; Windows Photo Gallery). Written are MWG regions, and each name as the keyword
`People/NAME` of digiKam (`digiKam:TagsList`), `People|NAME` of Lightroom (`lr:hierarchicalSubject`) and `NAME`
(`dc:subject`).

Whatever this program adds is marked in a namespace of its own, so that it can be taken back: `add_names` first restores
the packet as other programs left it, and then adds the names there are now. Everything else stays as it is.
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from familiar.core.errors import BadMetadata
from familiar.core.names import unify_spelling
from familiar.core.types import Box
from familiar.integrations.xmp.rdf import (
    MARKER_URI,
    add_element,
    add_struct,
    field_text,
    find_field,
    has_properties,
    list_container,
    list_items,
    nodes_of,
    parse_packet,
    remove_field,
    set_field,
    write_packet,
)
from familiar.integrations.xmp.regions import SAME_FACE, Region

# Markers in a region: one that was added, and the name that other programs gave to one that was renamed.
_ADDED = "familiar:added"
_FORMER_NAME = "familiar:formerName"
_FACE_KINDS = ("", "Face", "Pet")
_MAX_ASPECT_ERROR = 0.02  # of a photo that was scaled down to whole pixels; a cropped one differs by more


@dataclass(frozen=True)
class _RegionList:
    """Where regions are in a packet.

    Attributes:
        info: property that contains the list.
        items: the list in it.
        name: of a region, whom it shows.
        read_box: reads a region's box; None if it is no rectangle, or in an unknown unit.
    """

    info: str
    items: str
    name: str
    read_box: Callable[[Element], Box | None]

    def elements(self, rdf: Element) -> list[Element]:
        """Return the elements of the regions."""
        return list_items(find_field(rdf, self.info), self.items)

    def container(self, rdf: Element) -> Element:
        """Return the element that contains the regions, made if it is missing."""
        info = find_field(rdf, self.info)
        return list_container(add_struct(rdf, self.info, {}) if info is None else info, self.items)

    def regions(self, rdf: Element) -> list[tuple[Element, Region]]:
        """Return the regions of faces and their elements, without those whose box cannot be read."""
        regions: list[tuple[Element, Region]] = []
        for element in self.elements(rdf):
            kind = (field_text(element, "mwg-rs:Type") or "").strip()  # Microsoft's have none
            if kind in _FACE_KINDS and (box := self.read_box(element)) is not None:
                regions.append((element, Region(box, (field_text(element, self.name) or "").strip(), kind or "Face")))
        return regions


@dataclass(frozen=True)
class _KeywordList:
    """A list of keywords.

    Attributes:
        name: of the property.
        container: what contains the items of a new one.
        separator: between the levels of a keyword; empty if there are none.
        marker: the list of those keywords that were added.
    """

    name: str
    container: str
    separator: str
    marker: str

    def keyword(self, name: str) -> str:
        """Return the keyword of a person; a separator in the name would make a level of it."""
        return f"People{self.separator}{name.replace(self.separator, '_')}" if self.separator else name

    def add(self, rdf: Element, texts: Sequence[str]) -> None:
        """Add keywords, and mark them."""
        for text in texts:
            add_element(list_container(rdf, self.name, self.container), "rdf:li", text)
            add_element(list_container(rdf, self.marker), "rdf:li", text)


def _read_mwg_box(region: Element) -> Box | None:
    """Read a box that is stored by its center."""
    area = find_field(region, "mwg-rs:Area")
    if area is None or (field_text(area, "stArea:unit") or "normalized") not in ("normalized", "normal"):
        return None
    x, y, width, height = (_number(field_text(area, f"stArea:{side}")) for side in "xywh")
    return _valid_box(x - width / 2, y - height / 2, width, height)


def _read_microsoft_box(region: Element) -> Box | None:
    """Read a box that is stored as "left, top, width, height"."""
    numbers = [_number(text) for text in (field_text(region, "MPReg:Rectangle") or "").split(",")]
    return _valid_box(*numbers) if len(numbers) == 4 else None


def _number(text: str | None) -> float:
    """Parse a number; NaN if it is none. Some programs wrote a decimal comma."""
    try:
        return float((text or "").strip().replace(",", "."))
    except ValueError:
        return math.nan


def _valid_box(x: float, y: float, width: float, height: float) -> Box | None:
    box = Box(x, y, x + width, y + height)
    is_valid = -1 <= box.left < box.right <= 2 and -1 <= box.top < box.bottom <= 2  # false for NaN
    return box if is_valid else None


_MWG_REGIONS = _RegionList("mwg-rs:Regions", "mwg-rs:RegionList", "mwg-rs:Name", _read_mwg_box)
_MICROSOFT_REGIONS = _RegionList("MP:RegionInfo", "MPRI:Regions", "MPReg:PersonDisplayName", _read_microsoft_box)
_REGION_LISTS = (_MWG_REGIONS, _MICROSOFT_REGIONS)
_KEYWORD_LISTS = (
    _KeywordList("dc:subject", "rdf:Bag", "", "familiar:addedSubjects"),
    _KeywordList("digiKam:TagsList", "rdf:Seq", "/", "familiar:addedTags"),
    _KeywordList("lr:hierarchicalSubject", "rdf:Bag", "|", "familiar:addedHierarchicalSubjects"),
)


def read_regions(
    packet: bytes, stored_size_px: tuple[int, int] | None = None, *, turned_as: int | None = None
) -> list[Region]:
    """Read the regions of faces and pets, MWG's before Microsoft's; those without a name too.

    Args:
        packet: the XMP packet or sidecar.
        stored_size_px: of the photo before it is turned upright; None: of whatever photo.
        turned_as: in the sidecar of a raw file for a photo of the same picture: the photo's EXIF orientation.

    Raises:
        BadMetadata: it is not XMP, or its names are for a photo of other proportions, such as before a crop; or a raw
            file's do not say that they are for a photo of these, turned as this one.
    """
    _, rdf = parse_packet(packet)
    regions = [region for listed in _REGION_LISTS for _, region in listed.regions(rdf)]
    if stored_size_px is not None and any(region.name for region in regions):
        _check_frame(rdf, stored_size_px, turned_as)
    return regions


def has_added_names(packet: bytes) -> bool:
    """Whether `add_names` added anything to a packet. A look at the bytes, without parsing them."""
    return MARKER_URI.encode() in packet or MARKER_URI.encode("utf-16-le") in packet


def has_names(packet: bytes) -> bool:
    """Whether a packet contains regions or keywords of any program."""
    _, rdf = parse_packet(packet)
    names = [*(regions.info for regions in _REGION_LISTS), *(keywords.name for keywords in _KEYWORD_LISTS)]
    return any(find_field(rdf, name) is not None for name in names)


def add_names(
    packet: bytes | None, regions: Sequence[Region], stored_size_px: tuple[int, int], base: bytes | None = None
) -> bytes | None:
    """Replace the names that earlier calls added to a packet by the names of these regions.

    A region of another program that marks the same face (an intersection over union above `SAME_FACE`) gets the name,
    instead of a second region; its former name is noted, and restored by a later call that does not name the face.

    Args:
        packet: to change; None: a new one.
        regions: each with a name.
        stored_size_px: of the photo before it is turned upright.
        base: the packet in the photo, when `packet` is a sidecar: programs that read a list in the sidecar do not look
            for it in the photo, so a list that is new in the sidecar begins with the photo's items.

    Returns:
        The same object if nothing changes, and None if the packet contains nothing any more.

    Raises:
        BadMetadata: the packet is not XMP, or names cannot be added to what it contains.
    """
    if not regions and (packet is None or not has_added_names(packet)):
        return packet
    base_rdf = _parse_base(base)  # first: the prefixes of the packet that was parsed last are written
    root, rdf = parse_packet(packet)
    before = write_packet(root)
    had_names = _restore(rdf)
    if regions:
        _copy_lists(base_rdf, rdf)
        _add_regions(rdf, regions, stored_size_px)
        for keywords in _KEYWORD_LISTS:
            present = {unify_spelling(item.text or "") for item in list_items(rdf, keywords.name)}
            texts = dict.fromkeys(keywords.keyword(region.name) for region in regions)
            keywords.add(rdf, [text for text in texts if text not in present])
    if (had_names or packet is None) and not has_properties(rdf):
        return None
    after = write_packet(root)
    return packet if after == before else after


def _restore(rdf: Element) -> bool:
    """Take back all that `add_names` added; return whether it was anything."""
    restored = False
    for regions in _REGION_LISTS:
        for element in regions.elements(rdf):
            former = field_text(element, _FORMER_NAME)
            if field_text(element, _ADDED) is not None:
                regions.container(rdf).remove(element)
            elif former:
                set_field(element, regions.name, former)
            elif former is not None:
                remove_field(element, regions.name)
            else:
                continue
            remove_field(element, _FORMER_NAME)
            restored = True
    if restored and not _MWG_REGIONS.elements(rdf):
        remove_field(rdf, _MWG_REGIONS.info)
    for keywords in _KEYWORD_LISTS:
        if marked := list_items(rdf, keywords.marker):
            restored = True
            for text in (each.text for each in marked):
                equal = [item for item in list_items(rdf, keywords.name) if item.text == text]
                for item in equal[:1]:  # none, if another program has removed it
                    list_container(rdf, keywords.name).remove(item)
            if not list_items(rdf, keywords.name):
                remove_field(rdf, keywords.name)
            remove_field(rdf, keywords.marker)
    return restored


def _parse_base(base: bytes | None) -> Element:
    """Parse a packet and take back all that `add_names` added to it; one that cannot be parsed counts as empty."""
    try:
        _, rdf = parse_packet(base)
    except BadMetadata:
        _, rdf = parse_packet(None)
    _restore(rdf)
    return rdf


def _copy_lists(source: Element, rdf: Element) -> None:
    """Copy the lists that a sidecar lacks from the packet in its photo; the copies count as added."""
    info = find_field(source, _MWG_REGIONS.info)
    if info is not None and _MWG_REGIONS.elements(source) and find_field(rdf, _MWG_REGIONS.info) is None:
        nodes_of(rdf)[-1].append(deepcopy(info))
        for element in _MWG_REGIONS.elements(rdf):
            set_field(element, _ADDED, "True")
    for keywords in _KEYWORD_LISTS:
        if find_field(rdf, keywords.name) is None:
            keywords.add(rdf, [item.text or "" for item in list_items(source, keywords.name)])


def _add_regions(rdf: Element, regions: Sequence[Region], stored_size_px: tuple[int, int]) -> None:
    """Add MWG regions, marked as added. Regions of other programs that mark the same faces get their names instead."""
    if _MWG_REGIONS.regions(rdf):
        _check_frame(rdf, stored_size_px)
    if find_field(rdf, _MWG_REGIONS.info) is None:
        size = {"stDim:w": str(stored_size_px[0]), "stDim:h": str(stored_size_px[1]), "stDim:unit": "pixel"}
        add_struct(add_struct(rdf, _MWG_REGIONS.info, {}), "mwg-rs:AppliedToDimensions", size)
    container = _MWG_REGIONS.container(rdf)
    renamed = _rename(rdf, _MWG_REGIONS, regions)
    _rename(rdf, _MICROSOFT_REGIONS, regions)
    for region in regions:
        if region not in renamed:
            left, top, right, bottom = region.box
            sides = zip("xywh", ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top), strict=True)
            area = {f"stArea:{side}": f"{share:.7f}" for side, share in sides} | {"stArea:unit": "normalized"}
            fields = {"mwg-rs:Name": region.name, "mwg-rs:Type": region.kind, _ADDED: "True"}
            add_struct(add_struct(container, "rdf:li", fields), "mwg-rs:Area", area)


def _rename(rdf: Element, listed: _RegionList, regions: Sequence[Region]) -> list[Region]:
    """Give the names to regions that mark the same faces, each to the nearest; return those that were given."""
    existing = listed.regions(rdf)
    renamed: list[Region] = []
    for region in regions:
        nearest = max(existing, key=lambda each: region.box.intersection_over_union(each[1].box), default=None)
        if nearest is None or region.box.intersection_over_union(nearest[1].box) <= SAME_FACE:
            continue
        existing.remove(nearest)
        renamed.append(region)
        element, other = nearest
        if unify_spelling(other.name) != region.name:
            set_field(element, _FORMER_NAME, field_text(element, listed.name) or "")
            set_field(element, listed.name, region.name)
    return renamed


def _check_frame(rdf: Element, stored_size_px: tuple[int, int], turned_as: int | None = None) -> None:
    """Raise BadMetadata if the regions were marked in a photo of other proportions.

    Width and height may be swapped: some programs write those of the upright photo. With `turned_as`, an EXIF
    orientation, the packet has to say that they were marked in a photo of these proportions that is turned so.
    """
    dimensions = find_field(find_field(rdf, _MWG_REGIONS.info), "mwg-rs:AppliedToDimensions")
    width, height = (_number(field_text(dimensions, f"stDim:{side}")) for side in "wh")
    is_known = 0 < width < math.inf and 0 < height < math.inf
    if turned_as is not None:
        orientation = (field_text(rdf, "tiff:Orientation") or str(turned_as)).strip()
        if not is_known or orientation != str(turned_as) or _differ((width, height), stored_size_px):
            raise BadMetadata("its regions are not known to be for a photo of these proportions, turned as this one")
    elif is_known and _differ((width, height), stored_size_px) and _differ((height, width), stored_size_px):
        raise BadMetadata(
            f"its regions are for a photo of {width:.0f} x {height:.0f} px, and this one has "
            f"{stored_size_px[0]} x {stored_size_px[1]} (was it cropped since?); mark the faces again in the program "
            "that wrote them"
        )


def _differ(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Whether two sizes are of other proportions."""
    return abs(first[0] * second[1] / (first[1] * second[0]) - 1) > _MAX_ASPECT_ERROR
