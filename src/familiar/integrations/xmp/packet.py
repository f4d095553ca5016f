"""Read and write the names of faces in XMP packets: face regions and person keywords. Pure functions on bytes.

Read are the regions of the Metadata Working Group (MWG, `mwg-rs:Regions`; digiKam, Lightroom, Picasa 3.9) and of
Microsoft (`MP:RegionInfo`; Windows Photo Gallery). Written are MWG regions, and each name as the keyword
`People/NAME` of digiKam (`digiKam:TagsList`), `People|NAME` of Lightroom (`lr:hierarchicalSubject`) and `NAME`
(`dc:subject`).

Whatever this program adds is marked in a namespace of its own, so that it can be taken back: `add_names` first restores
the packet as other programs left it, and then adds the names there are now. Everything else stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.dom.minidom import Element

from familiar.core.errors import BadMetadata
from familiar.core.names import unify_spelling
from familiar.integrations.xmp.rdf import (
    DC_URI,
    DIGIKAM_URI,
    LIGHTROOM_URI,
    MARKER_URI,
    MP_REGION_URI,
    MWG_URI,
    RDF_URI,
    copy_of,
    field_element,
    field_text,
    fill_list,
    find_property,
    has_content,
    list_items,
    make_element,
    new_document,
    remove,
    remove_declarations,
    resources_of,
    set_field,
    text_of,
)
from familiar.integrations.xmp.regions import Region
from familiar.integrations.xmp.xml_text import parse_xml, write_xml
from familiar.integrations.xmp.xmp_regions import (
    ADDED,
    MP_URI,
    add_regions,
    check_frame,
    iterate_regions,
    restore_regions,
)

_NOTE = "http://ns.adobe.com/xmp/note/"


@dataclass(frozen=True)
class _KeywordList:
    """A list of keywords.

    Attributes:
        uri: its namespace.
        name: its name.
        container: "Bag" or "Seq".
        separator: between the levels of a keyword; empty if there are none.
        marker: the list of those keywords that were added.
    """

    uri: str
    name: str
    container: str
    separator: str
    marker: str

    def keyword(self, name: str) -> str:
        """Return the keyword of a person; a separator in the name would make a level of it."""
        return f"People{self.separator}{name.replace(self.separator, '_')}" if self.separator else name


_KEYWORDS = (
    _KeywordList(DC_URI, "subject", "Bag", "", "addedSubjects"),
    _KeywordList(DIGIKAM_URI, "TagsList", "Seq", "/", "addedTags"),
    _KeywordList(LIGHTROOM_URI, "hierarchicalSubject", "Bag", "|", "addedHierarchicalSubjects"),
)


def read_regions(packet: bytes, stored_size_px: tuple[int, int], *, turned_as: int | None = None) -> list[Region]:
    """Read the regions of faces and pets, MWG's before Microsoft's; those without a name too.

    Args:
        packet: the XMP packet or sidecar.
        stored_size_px: of the photo before it is turned upright.
        turned_as: in the sidecar of a raw file for a photo of the same picture: the photo's EXIF orientation.

    Raises:
        BadMetadata: it is not XMP, or its regions are for a photo of other proportions, such as before a crop; or a raw
            file's do not say that they are for a photo of these, turned as this one.
    """
    resources = resources_of(parse_xml(packet))
    mwg = [region for _, region in iterate_regions(resources, MWG_URI)]
    regions = mwg + [region for _, region in iterate_regions(resources, MP_REGION_URI)]
    if mwg or (turned_as is not None and any(region.name for region in regions)):
        check_frame(resources, stored_size_px, turned_as)
    return regions


def has_named_regions(packet: bytes) -> bool:
    """Whether a packet names a face.

    Raises:
        BadMetadata: it is not XMP.
    """
    resources = resources_of(parse_xml(packet))
    return any(region.name for uri in (MWG_URI, MP_REGION_URI) for _, region in iterate_regions(resources, uri))


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
    document = new_document() if packet is None else parse_xml(packet)
    before = write_xml(document)
    resources = resources_of(document)
    had_names = _restore(resources)
    if regions:
        if base is not None:
            _copy_lists(_restored_resources(base), resources)
        add_regions(resources, regions, stored_size_px)
        for keywords in _KEYWORDS:
            _add_keywords(resources, keywords, [region.name for region in regions])
    if (had_names or packet is None) and not any(map(has_content, resources)):
        return None
    after = write_xml(document)
    return packet if after == before else after


def extension_id(packet: bytes) -> str | None:
    """Return the number of the extended packet that a packet in a JPEG refers to."""
    return next((field_text(resource, _NOTE, "HasExtendedXMP") for resource in resources_of(parse_xml(packet))), None)


def has_names(packet: bytes) -> bool:
    """Whether a packet contains regions or keywords of any program."""
    resources = resources_of(parse_xml(packet))
    names = [(MWG_URI, "Regions"), (MP_URI, "RegionInfo"), *((listed.uri, listed.name) for listed in _KEYWORDS)]
    return any(find_property(resources, uri, name) is not None for uri, name in names)


def _add_keywords(resources: Sequence[Element], keywords: _KeywordList, names: Sequence[str]) -> None:
    """Add the names that a list of keywords lacks, and mark them."""
    items = list_items(find_property(resources, keywords.uri, keywords.name))
    present = {unify_spelling(text_of(item)) for item in items}
    texts = dict.fromkeys(keywords.keyword(name) for name in names)
    _append_marked(resources, keywords, [make_element(RDF_URI, "li", text) for text in texts if text not in present])


def _append_marked(resources: Sequence[Element], keywords: _KeywordList, items: Sequence[Element]) -> None:
    """Append keywords to a list, and to that of those which were added."""
    if items:
        marked = [make_element(RDF_URI, "li", text_of(item)) for item in items]
        fill_list(resources, keywords.uri, keywords.name, keywords.container, items)
        fill_list(resources, MARKER_URI, keywords.marker, "Bag", marked)


def _restore(resources: Sequence[Element]) -> bool:
    """Take back all that `add_names` added; return whether it was anything."""
    restored = restore_regions(resources)
    for keywords in _KEYWORDS:
        marked = find_property(resources, MARKER_URI, keywords.marker)
        if marked is not None:
            restored = True
            prop = find_property(resources, keywords.uri, keywords.name)
            _take_back_keywords(prop, list(map(text_of, list_items(marked))))
            remove(marked)
    for resource in resources:
        remove_declarations(resource, MARKER_URI)
    return restored


def _take_back_keywords(prop: Element | None, texts: Sequence[str]) -> None:
    for text in texts:
        item = next((item for item in list_items(prop) if text_of(item) == text), None)
        if item is not None:
            remove(item)
    if prop is not None and not list_items(prop):
        remove(prop)


def _restored_resources(packet: bytes) -> list[Element]:
    """Return the properties of a packet as other programs left them; none if it cannot be read."""
    try:
        resources = resources_of(parse_xml(packet))
    except BadMetadata:
        return []
    _restore(resources)
    return resources


def _copy_lists(sources: Sequence[Element], resources: Sequence[Element]) -> None:
    """Copy the lists that are missing in a sidecar from the packet in its photo; the copies count as added."""
    regions = find_property(sources, MWG_URI, "Regions")
    if regions is not None and find_property(resources, MWG_URI, "Regions") is None:
        regions = copy_of(regions)
        items = list_items(field_element(regions, MWG_URI, "RegionList"))
        for item in items:
            set_field(item, MARKER_URI, ADDED, "True")
        if items:
            resources[0].appendChild(regions)
    for keywords in _KEYWORDS:
        items = list_items(find_property(sources, keywords.uri, keywords.name))
        if items and find_property(resources, keywords.uri, keywords.name) is None:
            _append_marked(resources, keywords, list(map(copy_of, items)))
