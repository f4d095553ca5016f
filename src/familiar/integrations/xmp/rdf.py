"""XMP packets as trees of `xml.etree`, and RDF in them: properties, structures and lists, in each notation of RDF.

A structure is an element whose fields are elements or attributes in it, or in an `rdf:Description` in it. The packet's
`rdf:RDF` is one too: its fields are the properties. Names have the prefixes of `PREFIXES`, whatever those in the file.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from xml.etree.ElementTree import Element, SubElement

from familiar.core.errors import BadMetadata

MAX_BYTES = 16 * 2**20  # of a packet; one with a camera's edits, masks and a preview has some hundred thousand
MARKER_URI = "urn:familiar-faces:names:1.0/"
PREFIXES = {
    "x": "adobe:ns:meta/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "familiar": MARKER_URI,
    "mwg-rs": "http://www.metadataworkinggroup.com/schemas/regions/",
    "stArea": "http://ns.adobe.com/xmp/sType/Area#",
    "stDim": "http://ns.adobe.com/xap/1.0/sType/Dimensions#",
    "MP": "http://ns.microsoft.com/photo/1.2/",
    "MPRI": "http://ns.microsoft.com/photo/1.2/t/RegionInfo#",
    "MPReg": "http://ns.microsoft.com/photo/1.2/t/Region#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "digiKam": "http://www.digikam.org/ns/1.0/",
    "lr": "http://ns.adobe.com/lightroom/1.0/",
    "tiff": "http://ns.adobe.com/tiff/1.0/",
}
_GENERATED_PREFIX = re.compile(r"(ns\d+)?")  # `xml.etree` makes such ones for namespaces without a usable prefix
_HEAD, _TAIL = '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n', '\n<?xpacket end="w"?>'


class _Builder(ElementTree.TreeBuilder):
    """Makes a tree that is written with the prefixes of the file that it was read from.

    Document type declarations are refused, and with them all entities: a few lines of these can fill the memory.
    """

    def start_ns(self, prefix: str, uri: str) -> None:
        if not _GENERATED_PREFIX.fullmatch(prefix):
            ElementTree.register_namespace(prefix, uri)

    def doctype(self, *_: object) -> None:
        raise BadMetadata("declares a document type or entities, which XMP never needs")


def parse_packet(data: bytes | None) -> tuple[Element, Element]:
    """Parse a packet in any encoding that it declares; return its root and its `rdf:RDF`.

    Args:
        data: the packet; None: make one without properties.

    Raises:
        BadMetadata: it is not XMP, not well-formed, too large, or has a document type declaration.
    """
    if data is None:
        data = f'<x:xmpmeta xmlns:x="{PREFIXES["x"]}"><rdf:RDF xmlns:rdf="{PREFIXES["rdf"]}"/></x:xmpmeta>'.encode()
    if len(data) > MAX_BYTES:
        raise BadMetadata(f"has {len(data):,} bytes, more than the limit of {MAX_BYTES:,}")
    for prefix, uri in PREFIXES.items():
        ElementTree.register_namespace(prefix, uri)
    parser = ElementTree.XMLParser(target=_Builder(insert_comments=True, insert_pis=True))
    try:
        root = ElementTree.fromstring(data, parser)
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
        raise BadMetadata(f"is not valid XML ({error})") from error
    rdf = root if root.tag == _tag("rdf:RDF") else root.find(_tag("rdf:RDF"))
    if rdf is None:
        raise BadMetadata("is not XMP (it has no element rdf:RDF)")
    if rdf.find(_tag("rdf:Description")) is None:
        add_element(rdf, "rdf:Description").set(_tag("rdf:about"), "")
    return root, rdf


def write_packet(root: Element) -> bytes:
    """Write a packet in UTF-8.

    Raises:
        BadMetadata: it is nested too deeply.
    """
    try:
        text = ElementTree.tostring(root, "unicode")
    except RecursionError as error:
        raise BadMetadata("nests too many elements in each other") from error
    return f"{_HEAD}{text}{_TAIL}".replace("\r", "&#13;").encode()  # which would be read as a line feed


def has_properties(rdf: Element) -> bool:
    """Whether a packet has any property."""
    return any(len(node) or node.attrib.keys() - {_tag("rdf:about")} for node in nodes_of(rdf)[1:])


def find_field(struct: Element | None, name: str) -> Element | None:
    """Return a field that is an element, such as a structure or a list, if there is one."""
    return next((child for node in nodes_of(struct) if (child := node.find(_tag(name))) is not None), None)


def field_text(struct: Element | None, name: str) -> str | None:
    """Return the text of a field, if there is one."""
    if (element := find_field(struct, name)) is not None:
        return element.text or ""
    return next((node.attrib[_tag(name)] for node in nodes_of(struct) if _tag(name) in node.attrib), None)


def set_field(struct: Element, name: str, text: str) -> None:
    """Replace the text of a field, or add it."""
    node = next((node for node in nodes_of(struct) if _tag(name) in node.attrib), nodes_of(struct)[-1])
    if (element := find_field(struct, name)) is not None:
        element.text = text
    elif _tag("rdf:parseType") in node.attrib:  # such an element has no other attributes
        add_element(node, name, text)
    else:
        node.set(_tag(name), text)


def remove_field(struct: Element, name: str) -> None:
    """Remove a field of a structure."""
    for node in nodes_of(struct):
        for element in node.findall(_tag(name)):
            node.remove(element)
        node.attrib.pop(_tag(name), None)


def add_element(parent: Element, name: str, text: str | None = None) -> Element:
    """Append an element with a text."""
    element = SubElement(parent, _tag(name))
    element.text = text
    return element


def add_struct(parent: Element, name: str, fields: Mapping[str, str]) -> Element:
    """Append a structure with texts as its fields, to an element or to where the fields of a structure are."""
    struct = add_element(nodes_of(parent)[-1], name)
    struct.set(_tag("rdf:parseType"), "Resource")
    for field, text in fields.items():
        add_element(struct, field, text)
    return struct


def list_items(struct: Element | None, name: str) -> list[Element]:
    """Return the items of a list; none if it is missing."""
    prop = find_field(struct, name)
    return [] if prop is None else prop.findall(f"*/{_tag('rdf:li')}")


def list_container(struct: Element, name: str, kind: str = "rdf:Bag") -> Element:
    """Return the element that contains the items of a list; both are made if they are missing.

    Raises:
        BadMetadata: the field is not a list.
    """
    prop = find_field(struct, name)
    if prop is None and field_text(struct, name) is None:
        prop = add_element(nodes_of(struct)[-1], name)
    if prop is not None and not len(prop) and not (prop.text or "").strip():
        add_element(prop, kind)
    containers = (find_field(prop, each) for each in ("rdf:Bag", "rdf:Seq", "rdf:Alt"))
    container = next((each for each in containers if each is not None), None)
    if container is None:
        raise BadMetadata(f"{name} is not a list")
    return container


def nodes_of(struct: Element | None) -> list[Element]:
    """Return the elements that the fields of a structure may be in; new ones go into the last."""
    return [] if struct is None else [struct, *struct.findall(_tag("rdf:Description"))]


def _tag(name: str) -> str:
    """Return a name as `xml.etree` has it."""
    prefix, _, local_name = name.partition(":")
    return f"{{{PREFIXES[prefix]}}}{local_name}"
