"""Read and write the names of faces in XMP packets: face regions and person keywords. Pure functions on bytes.

Read are the regions of the Metadata Working Group (MWG, `mwg-rs:Regions`; digiKam, Lightroom, Picasa 3.9) and of
Microsoft (`MP:RegionInfo`; Windows Photo Gallery). Written are MWG regions, and each name as the keyword
`People/NAME` of digiKam (`digiKam:TagsList`), `People|NAME` of Lightroom (`lr:hierarchicalSubject`) and `NAME`
(`dc:subject`).

Whatever this program adds is marked in a namespace of its own, so that it can be taken back: `add_names` first restores
the packet as other programs left it, and then adds the names there are now. Everything else stays as it is.
"""

import copy
import math
from collections.abc import Iterator, Sequence

from familiar.core.errors import BadMetadata
from familiar.photos.regions import SAME_FACE, Box, Region, intersection_over_union
from familiar.photos.xml_tree import Attribute, Document, Element, Markup, declaration, parse_xml, write_xml

MARKER_URI = "urn:familiar-faces:names:1.0/"
_X = "adobe:ns:meta/"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_MWG = "http://www.metadataworkinggroup.com/schemas/regions/"
_AREA = "http://ns.adobe.com/xmp/sType/Area#"
_DIMENSIONS = "http://ns.adobe.com/xap/1.0/sType/Dimensions#"
_MP = "http://ns.microsoft.com/photo/1.2/"
_MP_INFO = "http://ns.microsoft.com/photo/1.2/t/RegionInfo#"
_MP_REGION = "http://ns.microsoft.com/photo/1.2/t/Region#"
_NOTE = "http://ns.adobe.com/xmp/note/"
_PREFIXES = {
    MARKER_URI: "familiar",
    _X: "x",
    _RDF: "rdf",
    _MWG: "mwg-rs",
    _AREA: "stArea",
    _DIMENSIONS: "stDim",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://www.digikam.org/ns/1.0/": "digiKam",
    "http://ns.adobe.com/lightroom/1.0/": "lr",
}

# Of each list of keywords: namespace, name, container, what precedes a person's name, and the marker that lists those
# keywords which were added.
_KEYWORDS = (
    ("http://purl.org/dc/elements/1.1/", "subject", "Bag", "", "addedSubjects"),
    ("http://www.digikam.org/ns/1.0/", "TagsList", "Seq", "People/", "addedTags"),
    ("http://ns.adobe.com/lightroom/1.0/", "hierarchicalSubject", "Bag", "People|", "addedHierarchicalSubjects"),
)
# Markers in a region: one that was added, and the name that other programs gave to one that was renamed.
_ADDED, _FORMER_NAME = "added", "formerName"
_NAME_FIELD = {_MWG: "Name", _MP_REGION: "PersonDisplayName"}
_FACE_KINDS = ("", "Face", "Pet")
_MAX_ASPECT_ERROR = 0.02  # of a photo that was scaled down to whole pixels; a cropped one differs by more


def read_regions(packet: bytes, stored_size_px: tuple[int, int]) -> list[Region]:
    """Read the regions of faces and pets, MWG's before Microsoft's; those without a name too.

    Args:
        packet: the XMP packet or sidecar.
        stored_size_px: of the photo before it is turned upright.

    Raises:
        BadMetadata: it is not XMP, or its regions are for a photo of other proportions, such as before a crop.
    """
    resources = _resources(parse_xml(packet))
    regions = [(region, element) for uri in (_MWG, _MP_REGION) for element, region in _regions(resources, uri)]
    if any(_is_mwg(element) for _, element in regions):
        _check_proportions(resources, stored_size_px)
    return [region for region, _ in regions]


def has_added_names(packet: bytes) -> bool:
    """Whether `add_names` added anything to a packet. A look at the bytes, without parsing them."""
    return MARKER_URI.encode() in packet or MARKER_URI.encode("utf-16-le") in packet


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
    document = _new_document() if packet is None else parse_xml(packet)
    before = write_xml(document)
    resources = _resources(document)
    had_names = _restore(resources)
    if regions:
        if base is not None:
            _copy_lists(_restored_resources(base), resources)
        _add_regions(resources, regions, stored_size_px)
        for keywords in _KEYWORDS:
            _add_keywords(resources[0], resources, keywords, [region.name for region in regions])
    if (had_names or packet is None) and not any(map(_has_content, resources)):
        return None
    after = write_xml(document)
    return packet if after == before else after


def extension_id(packet: bytes) -> str | None:
    """Return the number of the extended packet that a packet in a JPEG refers to."""
    return next((_field(resource, _NOTE, "HasExtendedXMP") for resource in _resources(parse_xml(packet))), None)


def has_names(packet: bytes) -> bool:
    """Whether a packet contains regions or keywords of any program."""
    resources = _resources(parse_xml(packet))
    names = [(_MWG, "Regions"), (_MP, "RegionInfo"), *((uri, name) for uri, name, *_ in _KEYWORDS)]
    return any(_property(resources, uri, name) is not None for uri, name in names)


# --- RDF ------------------------------------------------------------------------------------------------------------


def _new_document() -> Document:
    description = _element(_RDF, "Description")
    description.attributes.append(Attribute("rdf", _RDF, "about", ""))
    root = _element(_X, "xmpmeta", _element(_RDF, "RDF", description))
    begin, end = (Markup(f"<?xpacket {text}?>") for text in ('begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"', 'end="w"'))
    return Document([begin], root, [end])


def _resources(document: Document) -> list[Element]:
    """Return the elements `rdf:Description`, which contain all properties; one at least.

    Raises:
        BadMetadata: the document is not XMP.
    """
    root = document.root
    rdf = root if root.has_name(_RDF, "RDF") else root.find(_RDF, "RDF")
    if rdf is None:
        raise BadMetadata("is not XMP (it has no element rdf:RDF)")
    resources = [element for element in rdf.elements if element.has_name(_RDF, "Description")]
    if not resources:
        resources = [_element(_RDF, "Description")]
        resources[0].attributes.append(Attribute("rdf", _RDF, "about", ""))
        rdf.children += resources
    return resources


def _element(uri: str, name: str, *children: "Element | str") -> Element:
    return Element(_PREFIXES[uri], uri, name, children=list(children))


def _struct(uri: str, name: str, *children: Element) -> Element:
    """Make an element that contains the fields of a structure."""
    struct = _element(uri, name, *children)
    struct.attributes.append(Attribute("rdf", _RDF, "parseType", "Resource"))
    return struct


def _property(resources: Sequence[Element], uri: str, name: str) -> Element | None:
    return next((child for resource in resources if (child := resource.find(uri, name)) is not None), None)


def _remove_property(resources: Sequence[Element], child: Element) -> None:
    for resource in resources:
        if any(element is child for element in resource.elements):
            resource.remove(child)


def _has_content(resource: Element) -> bool:
    return bool(resource.elements) or any(
        not attribute.is_declaration and attribute.uri != _RDF for attribute in resource.attributes
    )


def _field_nodes(struct: Element) -> list[Element]:
    """Return the elements that the fields of a structure may be in: itself, or an rdf:Description in it."""
    return [struct, *(child for child in struct.elements if child.has_name(_RDF, "Description"))]


def _field(struct: Element, uri: str, name: str) -> str | None:
    """Return the text of a field, which may be an element or an attribute."""
    for node in _field_nodes(struct):
        if (element := node.find(uri, name)) is not None:
            return element.text
        if (attribute := node.attribute(uri, name)) is not None:
            return attribute.value
    return None


def _child(struct: Element, uri: str, name: str) -> Element | None:
    """Return a field that is a structure or a list."""
    return next((child for node in _field_nodes(struct) if (child := node.find(uri, name)) is not None), None)


def _set_field(struct: Element, uri: str, name: str, text: str, prefix: str) -> None:
    for node in _field_nodes(struct):
        if (element := node.find(uri, name)) is not None:
            element.children = [text]
            return
        if (attribute := node.attribute(uri, name)) is not None:
            attribute.value = text
            return
    node = _field_nodes(struct)[-1]
    if node is struct and node.attribute(_RDF, "parseType") is None:  # all its fields are attributes
        node.attributes.append(Attribute(prefix, uri, name, text))
    else:
        node.children.append(Element(prefix, uri, name, children=[text]))


def _remove_field(struct: Element, uri: str, name: str) -> None:
    for node in _field_nodes(struct):
        if (element := node.find(uri, name)) is not None:
            node.remove(element)
        node.attributes = [each for each in node.attributes if (each.uri, each.name) != (uri, name)]


def _container(prop: Element) -> Element | None:
    """Return the rdf:Bag, rdf:Seq or rdf:Alt of a list."""
    return next((child for child in prop.elements if child.uri == _RDF and child.name in ("Bag", "Seq", "Alt")), None)


def _items(prop: Element | None) -> list[Element]:
    container = None if prop is None else _container(prop)
    return [] if container is None else [child for child in container.elements if child.has_name(_RDF, "li")]


# --- regions --------------------------------------------------------------------------------------------------------


def _is_mwg(region: Element) -> bool:
    return _child(region, _MWG, "Area") is not None


def _region_list(resources: Sequence[Element], uri: str) -> Element | None:
    """Return the list of regions of MWG or of Microsoft."""
    info, info_uri, name = (_MWG, _MWG, "RegionList") if uri == _MWG else (_MP, _MP_INFO, "Regions")
    prop = _property(resources, info, "Regions" if uri == _MWG else "RegionInfo")
    return None if prop is None else _child(prop, info_uri, name)


def _regions(resources: Sequence[Element], uri: str) -> Iterator[tuple[Element, Region]]:
    """Iterate over the regions of faces in a list, without those whose box cannot be read."""
    for item in _items(_region_list(resources, uri)):
        kind = (_field(item, _MWG, "Type") or "").strip() if uri == _MWG else "Face"
        box = _mwg_box(item) if uri == _MWG else _microsoft_box(item)
        if box is not None and kind in _FACE_KINDS:
            yield item, Region(box, (_field(item, uri, _NAME_FIELD[uri]) or "").strip(), kind or "Face")


def _mwg_box(region: Element) -> Box | None:
    """Read a rectangle, which MWG stores by its center. None for a circle, a point, or in an unknown unit."""
    area = _child(region, _MWG, "Area")
    if area is None or (_field(area, _AREA, "unit") or "normalized") not in ("normalized", "normal"):
        return None
    x, y, width, height = (_number(_field(area, _AREA, side)) for side in "xywh")
    return _valid_box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _microsoft_box(region: Element) -> Box | None:
    """Read a rectangle, which Microsoft stores as "left, top, width, height"."""
    numbers = [_number(text) for text in (_field(region, _MP_REGION, "Rectangle") or "").split(",")]
    if len(numbers) != 4:
        return None
    left, top, width, height = numbers
    return _valid_box(left, top, left + width, top + height)


def _number(text: str | None) -> float:
    """Parse a number; NaN if it is none. Some programs wrote a decimal comma."""
    try:
        return float((text or "").strip().replace(",", "."))
    except ValueError:
        return math.nan


def _valid_box(left: float, top: float, right: float, bottom: float) -> Box | None:
    is_valid = -1 <= left < right <= 2 and -1 <= top < bottom <= 2  # false for NaN
    return (left, top, right, bottom) if is_valid else None


def _check_proportions(resources: Sequence[Element], stored_size_px: tuple[int, int]) -> None:
    """Raise BadMetadata if the regions were marked in a photo of other proportions.

    Width and height may be swapped: some programs write those of the upright photo.
    """
    prop = _property(resources, _MWG, "Regions")
    dimensions = None if prop is None else _child(prop, _MWG, "AppliedToDimensions")
    if dimensions is None:
        return
    width, height = (_number(_field(dimensions, _DIMENSIONS, side)) for side in "wh")
    if not (0 < width < math.inf and 0 < height < math.inf):
        return
    aspect, stored_aspect = (max(size) / min(size) for size in ((width, height), stored_size_px))
    if abs(aspect / stored_aspect - 1) > _MAX_ASPECT_ERROR:
        raise BadMetadata(
            f"its regions are for a photo of {width:.0f} x {height:.0f} px, and this one has "
            f"{stored_size_px[0]} x {stored_size_px[1]} (was it cropped since?); mark the faces again in the program "
            "that wrote them"
        )


def _add_regions(resources: Sequence[Element], regions: Sequence[Region], stored_size_px: tuple[int, int]) -> None:
    if any(True for _ in _regions(resources, _MWG)):
        _check_proportions(resources, stored_size_px)
    region_list = _region_list_to_fill(resources, stored_size_px)
    renamed = _rename_regions(resources, _MWG, regions)
    _rename_regions(resources, _MP_REGION, regions)
    region_list.children += [_new_region(region) for region in regions if region not in renamed]


def _region_list_to_fill(resources: Sequence[Element], stored_size_px: tuple[int, int]) -> Element:
    """Return the container of the MWG regions, made if it is missing."""
    prop = _property(resources, _MWG, "Regions")
    if prop is None:
        dimensions = _struct(
            _MWG,
            "AppliedToDimensions",
            *(_element(_DIMENSIONS, side, str(px)) for side, px in zip("wh", stored_size_px, strict=True)),
            _element(_DIMENSIONS, "unit", "pixel"),
        )
        prop = _struct(_MWG, "Regions", dimensions)
        prop.attributes += [declaration(_PREFIXES[uri], uri) for uri in (_AREA, _DIMENSIONS, MARKER_URI)]
        resources[0].children.append(prop)
    region_list = _child(prop, _MWG, "RegionList")
    if region_list is None:
        region_list = _element(_MWG, "RegionList", _element(_RDF, "Bag"))
        _field_nodes(prop)[-1].children.append(region_list)
    container = _container(region_list)
    if container is None:
        raise BadMetadata("mwg-rs:RegionList is not a list")
    return container


def _rename_regions(resources: Sequence[Element], uri: str, regions: Sequence[Region]) -> list[Region]:
    """Give the names to regions that mark the same faces, each to the nearest; return those that were given."""
    existing = list(_regions(resources, uri))
    pairs = [
        (overlap, new, old)
        for new, region in enumerate(regions)
        for old, (_, other) in enumerate(existing)
        if (overlap := intersection_over_union(region.box, other.box)) > SAME_FACE
    ]
    given_name: dict[int, Region] = {}
    renamed: dict[int, Region] = {}
    for _, new, old in sorted(pairs, reverse=True):
        if new in renamed or old in given_name:
            continue
        renamed[new] = given_name[old] = regions[new]
        element, other = existing[old]
        if other.name != regions[new].name:
            former = _field(element, uri, _NAME_FIELD[uri]) or ""
            _set_field(element, MARKER_URI, _FORMER_NAME, former, "familiar")
            _set_field(element, uri, _NAME_FIELD[uri], regions[new].name, "mwg-rs" if uri == _MWG else "MPReg")
    return list(renamed.values())


def _new_region(region: Region) -> Element:
    left, top, right, bottom = region.box
    sides = {"x": (left + right) / 2, "y": (top + bottom) / 2, "w": right - left, "h": bottom - top}
    area = _struct(
        _MWG,
        "Area",
        *(_element(_AREA, side, f"{share:.7f}") for side, share in sides.items()),
        _element(_AREA, "unit", "normalized"),
    )
    return _struct(
        _RDF,
        "li",
        area,
        _element(_MWG, "Name", region.name),
        _element(_MWG, "Type", region.kind),
        _element(MARKER_URI, _ADDED, "True"),
    )


# --- keywords -------------------------------------------------------------------------------------------------------


def _add_keywords(
    resource: Element,
    resources: Sequence[Element],
    keywords: tuple[str, str, str, str, str],
    names: Sequence[str],
) -> None:
    """Add the names that a list of keywords lacks, and mark them."""
    uri, list_name, container_name, before_name, marker = keywords
    present = {item.text for item in _items(_property(resources, uri, list_name))}
    added = [text for name in dict.fromkeys(names) if (text := before_name + name) not in present]
    _append_marked(resource, resources, (uri, list_name, container_name, marker), [_li(text) for text in added])


def _append_marked(
    resource: Element, resources: Sequence[Element], lists: tuple[str, str, str, str], items: Sequence[Element]
) -> None:
    """Append items to a list and their texts to its marker; both are made if they are missing."""
    uri, list_name, container_name, marker = lists
    if not items:
        return
    marked = [_li(item.text) for item in items]
    for list_uri, name, container, new_items in (
        (uri, list_name, container_name, items),
        (MARKER_URI, marker, "Bag", marked),
    ):
        prop = _property(resources, list_uri, name)
        if prop is None:
            if any(each.attribute(list_uri, name) for each in resources):
                raise BadMetadata(f"{_PREFIXES[list_uri]}:{name} is not a list")
            prop = _element(list_uri, name, _element(_RDF, container))
            resource.children.append(prop)
        if not prop.elements and not prop.text.strip():
            prop.children = [_element(_RDF, container)]
        filled = _container(prop)
        if filled is None:
            raise BadMetadata(f"{_PREFIXES[list_uri]}:{name} is not a list")
        filled.children += new_items


def _li(text: str) -> Element:
    return _element(_RDF, "li", text)


# --- taking back ----------------------------------------------------------------------------------------------------


def _restore(resources: Sequence[Element]) -> bool:
    """Take back all that `add_names` added; return whether it was anything."""
    restored = False
    for uri in (_MWG, _MP_REGION):
        region_list = _region_list(resources, uri)
        for item in _items(region_list):
            if _field(item, MARKER_URI, _ADDED) is not None:
                restored = True
                _remove_item(region_list, item)
            elif (former := _field(item, MARKER_URI, _FORMER_NAME)) is not None:
                restored = True
                _remove_field(item, MARKER_URI, _FORMER_NAME)
                if former:
                    _set_field(item, uri, _NAME_FIELD[uri], former, "")
                else:
                    _remove_field(item, uri, _NAME_FIELD[uri])
    if restored and (prop := _property(resources, _MWG, "Regions")) is not None:
        region_list = _region_list(resources, _MWG)
        if not _items(region_list):
            _remove_property(resources, prop)
    for uri, list_name, _, _, marker in _KEYWORDS:
        if (marked := _property(resources, MARKER_URI, marker)) is not None:
            restored = True
            _take_back_keywords(resources, _property(resources, uri, list_name), [item.text for item in _items(marked)])
            _remove_property(resources, marked)
    for resource in resources:
        _remove_marker_declarations(resource)
    return restored


def _remove_marker_declarations(element: Element) -> None:
    """Remove the declarations of the markers' namespace; where markers are added, they are written again."""
    element.attributes = [each for each in element.attributes if not each.is_declaration or each.value != MARKER_URI]
    for child in element.elements:
        _remove_marker_declarations(child)


def _take_back_keywords(resources: Sequence[Element], prop: Element | None, texts: Sequence[str]) -> None:
    for text in texts:
        item = next((item for item in _items(prop) if item.text == text), None)
        if item is not None:
            _remove_item(prop, item)
    if prop is not None and not _items(prop):
        _remove_property(resources, prop)


def _remove_item(prop: Element | None, item: Element) -> None:
    container = None if prop is None else _container(prop)
    assert container is not None, "the item comes from the list"
    container.remove(item)


# --- a new sidecar of a photo that contains a packet ----------------------------------------------------------------


def _restored_resources(packet: bytes) -> list[Element]:
    """Return the properties of a packet as other programs left them; none if it cannot be read."""
    try:
        resources = _resources(parse_xml(packet))
    except BadMetadata:
        return []
    _restore(resources)
    return resources


def _copy_lists(sources: Sequence[Element], resources: Sequence[Element]) -> None:
    """Copy the lists that are missing in a sidecar from the packet in its photo; the copies count as added."""
    regions = _property(sources, _MWG, "Regions")
    if regions is not None and _property(resources, _MWG, "Regions") is None:
        regions = copy.deepcopy(regions)
        for item in _items(_child(regions, _MWG, "RegionList")):
            _set_field(item, MARKER_URI, _ADDED, "True", "familiar")
        if _items(_child(regions, _MWG, "RegionList")):
            resources[0].children.append(regions)
    for uri, list_name, container, _, marker in _KEYWORDS:
        items = _items(_property(sources, uri, list_name))
        if items and _property(resources, uri, list_name) is None:
            _append_marked(resources[0], resources, (uri, list_name, container, marker), copy.deepcopy(items))
