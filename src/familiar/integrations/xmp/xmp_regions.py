"""Face regions in XMP packets: those of the Metadata Working Group (MWG) and of Microsoft."""

import math
from collections.abc import Iterator, Sequence
from xml.dom.minidom import Element

from familiar.core.errors import BadMetadata
from familiar.core.names import unify_spelling
from familiar.core.types import Box
from familiar.integrations.xmp.rdf import (
    AREA_URI,
    DIMENSIONS_URI,
    MARKER_URI,
    MP_REGION_URI,
    MWG_URI,
    RDF_URI,
    field_element,
    field_nodes,
    field_text,
    find_property,
    list_container,
    list_items,
    make_element,
    make_struct,
    remove,
    remove_field,
    set_field,
)
from familiar.integrations.xmp.regions import SAME_FACE, Region

MP_URI = "http://ns.microsoft.com/photo/1.2/"
_TIFF = "http://ns.adobe.com/tiff/1.0/"
_MP_INFO = "http://ns.microsoft.com/photo/1.2/t/RegionInfo#"
# Markers in a region: one that was added, and the name that other programs gave to one that was renamed.
ADDED = "added"
_FORMER_NAME = "formerName"
_NAME_FIELD = {MWG_URI: "Name", MP_REGION_URI: "PersonDisplayName"}
_FACE_KINDS = ("", "Face", "Pet")
_MAX_ASPECT_ERROR = 0.02  # of a photo that was scaled down to whole pixels; a cropped one differs by more


def _region_list(resources: Sequence[Element], uri: str) -> Element | None:
    """Return the list of regions of MWG or of Microsoft."""
    info, info_uri, name = (MWG_URI, MWG_URI, "RegionList") if uri == MWG_URI else (MP_URI, _MP_INFO, "Regions")
    prop = find_property(resources, info, "Regions" if uri == MWG_URI else "RegionInfo")
    return None if prop is None else field_element(prop, info_uri, name)


def iterate_regions(resources: Sequence[Element], uri: str) -> Iterator[tuple[Element, Region]]:
    """Iterate over the regions of faces in a list, without those whose box cannot be read."""
    for item in list_items(_region_list(resources, uri)):
        kind = (field_text(item, MWG_URI, "Type") or "").strip() if uri == MWG_URI else "Face"
        box = _mwg_box(item) if uri == MWG_URI else _microsoft_box(item)
        if box is not None and kind in _FACE_KINDS:
            yield item, Region(box, (field_text(item, uri, _NAME_FIELD[uri]) or "").strip(), kind or "Face")


def _mwg_box(region: Element) -> Box | None:
    """Read a rectangle, which MWG stores by its center. None for a circle, a point, or in an unknown unit."""
    area = field_element(region, MWG_URI, "Area")
    if area is None or (field_text(area, AREA_URI, "unit") or "normalized") not in ("normalized", "normal"):
        return None
    x, y, width, height = (_number(field_text(area, AREA_URI, side)) for side in "xywh")
    return _valid_box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _microsoft_box(region: Element) -> Box | None:
    """Read a rectangle, which Microsoft stores as "left, top, width, height"."""
    numbers = [_number(text) for text in (field_text(region, MP_REGION_URI, "Rectangle") or "").split(",")]
    if len(numbers) != 4:
        return None
    x, y, width, height = numbers
    return _valid_box(x, y, x + width, y + height)


def _number(text: str | None) -> float:
    """Parse a number; NaN if it is none. Some programs wrote a decimal comma."""
    try:
        return float((text or "").strip().replace(",", "."))
    except ValueError:
        return math.nan


def _valid_box(left: float, top: float, right: float, bottom: float) -> Box | None:
    is_valid = -1 <= left < right <= 2 and -1 <= top < bottom <= 2  # false for NaN
    return Box(left, top, right, bottom) if is_valid else None


def _marked_size(resources: Sequence[Element]) -> tuple[float, float] | None:
    """Return width and height of the photo in which the MWG regions were marked, if the packet has them."""
    prop = find_property(resources, MWG_URI, "Regions")
    dimensions = None if prop is None else field_element(prop, MWG_URI, "AppliedToDimensions")
    if dimensions is None:
        return None
    width, height = (_number(field_text(dimensions, DIMENSIONS_URI, side)) for side in "wh")
    return (width, height) if 0 < width < math.inf and 0 < height < math.inf else None


def check_frame(resources: Sequence[Element], stored_size_px: tuple[int, int], turned_as: int | None = None) -> None:
    """Raise BadMetadata if the regions were marked in a photo of other proportions.

    Width and height may be swapped: some programs write those of the upright photo. With `turned_as`, an EXIF
    orientation, the packet has to say that they were marked in a photo of these proportions that is turned so.
    """
    size = _marked_size(resources)
    if turned_as is not None:
        turned = next((text for each in resources if (text := field_text(each, _TIFF, "Orientation"))), str(turned_as))
        if size is None or turned.strip() != str(turned_as) or _differ(size, stored_size_px):
            raise BadMetadata("its regions are not known to be for a photo of these proportions, turned as this one")
    elif size is not None and _differ(size, stored_size_px) and _differ((size[1], size[0]), stored_size_px):
        raise BadMetadata(
            f"its regions are for a photo of {size[0]:.0f} x {size[1]:.0f} px, and this one has "
            f"{stored_size_px[0]} x {stored_size_px[1]} (was it cropped since?); mark the faces again in the program "
            "that wrote them"
        )


def _differ(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Whether two sizes are of other proportions."""
    return abs(first[0] * second[1] / (first[1] * second[0]) - 1) > _MAX_ASPECT_ERROR


def add_regions(resources: Sequence[Element], regions: Sequence[Region], stored_size_px: tuple[int, int]) -> None:
    """Add MWG regions, marked as added. Regions of other programs that mark the same faces get their names instead.

    Raises:
        BadMetadata: the packet's regions are for a photo of other proportions, or are not a list.
    """
    if any(True for _ in iterate_regions(resources, MWG_URI)):
        check_frame(resources, stored_size_px)
    region_list = _region_list_to_fill(resources, stored_size_px)
    renamed = _rename_regions(resources, MWG_URI, regions)
    _rename_regions(resources, MP_REGION_URI, regions)
    for region in regions:
        if region not in renamed:
            region_list.appendChild(_new_region(region))


def _region_list_to_fill(resources: Sequence[Element], stored_size_px: tuple[int, int]) -> Element:
    """Return the container of the MWG regions, made if it is missing."""
    prop = find_property(resources, MWG_URI, "Regions")
    if prop is None:
        dimensions = make_struct(
            MWG_URI,
            "AppliedToDimensions",
            *(make_element(DIMENSIONS_URI, side, str(px)) for side, px in zip("wh", stored_size_px, strict=True)),
            make_element(DIMENSIONS_URI, "unit", "pixel"),
        )
        prop = make_struct(MWG_URI, "Regions", dimensions)
        resources[0].appendChild(prop)
    region_list = field_element(prop, MWG_URI, "RegionList")
    if region_list is None:
        region_list = make_element(MWG_URI, "RegionList", make_element(RDF_URI, "Bag"))
        field_nodes(prop)[-1].appendChild(region_list)
    container = list_container(region_list)
    if container is None:
        raise BadMetadata("mwg-rs:RegionList is not a list")
    return container


def _rename_regions(resources: Sequence[Element], uri: str, regions: Sequence[Region]) -> list[Region]:
    """Give the names to regions that mark the same faces, each to the nearest; return those that were given."""
    existing = list(iterate_regions(resources, uri))
    renamed: list[Region] = []
    for region in regions:
        nearest = max(existing, key=lambda each: region.box.intersection_over_union(each[1].box), default=None)
        if nearest is None or region.box.intersection_over_union(nearest[1].box) <= SAME_FACE:
            continue
        existing.remove(nearest)
        renamed.append(region)
        element, other = nearest
        if unify_spelling(other.name) != region.name:
            set_field(element, MARKER_URI, _FORMER_NAME, field_text(element, uri, _NAME_FIELD[uri]) or "")
            set_field(element, uri, _NAME_FIELD[uri], region.name)
    return renamed


def _new_region(region: Region) -> Element:
    box = region.box
    sides = {"x": (box.left + box.right) / 2, "y": (box.top + box.bottom) / 2, "w": box.width, "h": box.height}
    area = make_struct(
        MWG_URI,
        "Area",
        *(make_element(AREA_URI, side, f"{share:.7f}") for side, share in sides.items()),
        make_element(AREA_URI, "unit", "normalized"),
    )
    return make_struct(
        RDF_URI,
        "li",
        area,
        make_element(MWG_URI, "Name", region.name),
        make_element(MWG_URI, "Type", region.kind),
        make_element(MARKER_URI, ADDED, "True"),
    )


def restore_regions(resources: Sequence[Element]) -> bool:
    """Remove the regions that were added, and give renamed ones their former names; return whether there were any."""
    restored = False
    for uri in (MWG_URI, MP_REGION_URI):
        for item in list_items(_region_list(resources, uri)):
            if field_text(item, MARKER_URI, ADDED) is not None:
                restored = True
                remove(item)
            elif (former := field_text(item, MARKER_URI, _FORMER_NAME)) is not None:
                restored = True
                remove_field(item, MARKER_URI, _FORMER_NAME)
                if former:
                    set_field(item, uri, _NAME_FIELD[uri], former)
                else:
                    remove_field(item, uri, _NAME_FIELD[uri])
    prop = find_property(resources, MWG_URI, "Regions")
    if restored and prop is not None and not list_items(_region_list(resources, MWG_URI)):
        remove(prop)
    return restored
