"""RDF as XMP packets contain it: properties, structures and lists, each in the notations that RDF allows."""

from collections.abc import Sequence
from xml.dom.minidom import Document, Element, Text

from familiar.core.errors import BadMetadata
from familiar.integrations.xmp.xml_text import XMLNS_URI, parse_xml

MARKER_URI = "urn:familiar-faces:names:1.0/"
MWG_URI = "http://www.metadataworkinggroup.com/schemas/regions/"
AREA_URI = "http://ns.adobe.com/xmp/sType/Area#"
DIMENSIONS_URI = "http://ns.adobe.com/xap/1.0/sType/Dimensions#"
DC_URI = "http://purl.org/dc/elements/1.1/"
DIGIKAM_URI = "http://www.digikam.org/ns/1.0/"
LIGHTROOM_URI = "http://ns.adobe.com/lightroom/1.0/"
MP_REGION_URI = "http://ns.microsoft.com/photo/1.2/t/Region#"
_X = "adobe:ns:meta/"
RDF_URI = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
PREFIXES = {
    MARKER_URI: "familiar",
    _X: "x",
    RDF_URI: "rdf",
    MWG_URI: "mwg-rs",
    AREA_URI: "stArea",
    DIMENSIONS_URI: "stDim",
    DC_URI: "dc",
    DIGIKAM_URI: "digiKam",
    LIGHTROOM_URI: "lr",
    MP_REGION_URI: "MPReg",
}
"""Of each namespace of the elements that are made: the usual prefix."""


_EMPTY = f"""<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="{_X}">\
<rdf:RDF xmlns:rdf="{RDF_URI}"><rdf:Description rdf:about=""/></rdf:RDF></x:xmpmeta><?xpacket end="w"?>"""
_FACTORY = Document()


def new_document() -> Document:
    """Make an XMP packet without properties."""
    return parse_xml(_EMPTY.encode())


def elements(parent: Element) -> list[Element]:
    """Return the elements among the children."""
    return [child for child in parent.childNodes if isinstance(child, Element)]


def find(parent: Element, uri: str, name: str) -> Element | None:
    """Return the first child element with a name."""
    return next((each for each in elements(parent) if (each.namespaceURI, each.localName) == (uri, name)), None)


def text_of(element: Element) -> str:
    """Return the text directly between the tags."""
    return "".join(child.data for child in element.childNodes if isinstance(child, Text))


def set_text(element: Element, text: str) -> None:
    """Replace all that is between the tags."""
    for child in list(element.childNodes):
        element.removeChild(child)
    element.appendChild(_FACTORY.createTextNode(text))


def remove(element: Element) -> None:
    """Remove an element from its parent."""
    assert element.parentNode is not None, "no property, item or field is a root"
    element.parentNode.removeChild(element)


def copy_of(element: Element) -> Element:
    """Copy an element with all that is in it."""
    copy = element.cloneNode(True)
    assert copy is not None, "only nodes of other kinds have no copy"
    return copy


def resources_of(document: Document) -> list[Element]:
    """Return the elements `rdf:Description`, which contain all properties; one at least.

    Raises:
        BadMetadata: the document is not XMP.
    """
    root = document.documentElement
    assert root is not None, "it was parsed"
    rdf = root if (root.namespaceURI, root.localName) == (RDF_URI, "RDF") else find(root, RDF_URI, "RDF")
    if rdf is None:
        raise BadMetadata("is not XMP (it has no element rdf:RDF)")
    if find(rdf, RDF_URI, "Description") is None:
        rdf.appendChild(make_element(RDF_URI, "Description")).setAttributeNS(RDF_URI, "rdf:about", "")
    return [each for each in elements(rdf) if (each.namespaceURI, each.localName) == (RDF_URI, "Description")]


def make_element(uri: str, name: str, *children: "Element | str") -> Element:
    """Make an element with the usual prefix of its namespace."""
    element = _FACTORY.createElementNS(uri, f"{PREFIXES[uri]}:{name}")
    for child in children:
        element.appendChild(child if isinstance(child, Element) else _FACTORY.createTextNode(child))
    return element


def make_struct(uri: str, name: str, *children: Element) -> Element:
    """Make an element that contains the fields of a structure."""
    struct = make_element(uri, name, *children)
    struct.setAttributeNS(RDF_URI, "rdf:parseType", "Resource")
    return struct


def find_property(resources: Sequence[Element], uri: str, name: str) -> Element | None:
    """Return the element of a property, if there is one."""
    return next((child for resource in resources if (child := find(resource, uri, name)) is not None), None)


def has_content(resource: Element) -> bool:
    """Whether an `rdf:Description` has any property."""
    others = (each for each in resource.attributes.values() if each.namespaceURI not in (XMLNS_URI, RDF_URI))
    return bool(elements(resource)) or any(True for _ in others)


def field_nodes(struct: Element) -> list[Element]:
    """Return the elements that the fields of a structure may be in: itself, or an rdf:Description in it."""
    inner = find(struct, RDF_URI, "Description")
    return [struct] if inner is None else [struct, inner]


def field_text(struct: Element, uri: str, name: str) -> str | None:
    """Return the text of a field, which may be an element or an attribute."""
    for node in field_nodes(struct):
        if (element := find(node, uri, name)) is not None:
            return text_of(element)
        if node.hasAttributeNS(uri, name):
            return node.getAttributeNS(uri, name)
    return None


def field_element(struct: Element, uri: str, name: str) -> Element | None:
    """Return a field that is a structure or a list."""
    return next((child for node in field_nodes(struct) if (child := find(node, uri, name)) is not None), None)


def set_field(struct: Element, uri: str, name: str, text: str) -> None:
    """Replace the text of a field, or add it."""
    for node in field_nodes(struct):
        if (element := find(node, uri, name)) is not None:
            return set_text(element, text)
        if (attribute := node.getAttributeNodeNS(uri, name)) is not None:
            attribute.value = text
            return None
    node = field_nodes(struct)[-1]
    if node.hasAttributeNS(RDF_URI, "parseType"):  # such an element has no other attributes
        node.appendChild(make_element(uri, name, text))
    else:
        node.setAttributeNS(uri, f"{PREFIXES[uri]}:{name}", text)
    return None


def remove_field(struct: Element, uri: str, name: str) -> None:
    """Remove a field of a structure."""
    for node in field_nodes(struct):
        if (element := find(node, uri, name)) is not None:
            remove(element)
        if node.hasAttributeNS(uri, name):
            node.removeAttributeNS(uri, name)


def list_container(prop: Element) -> Element | None:
    """Return the rdf:Bag, rdf:Seq or rdf:Alt of a list."""
    return next((each for name in ("Bag", "Seq", "Alt") if (each := find(prop, RDF_URI, name)) is not None), None)


def list_items(prop: Element | None) -> list[Element]:
    """Return the items of a list; none if it is missing."""
    container = None if prop is None else list_container(prop)
    return [] if container is None else [each for each in elements(container) if each.localName == "li"]


def fill_list(resources: Sequence[Element], uri: str, name: str, container: str, items: Sequence[Element]) -> None:
    """Append items to the list of a property; it is made if it is missing.

    Raises:
        BadMetadata: the property is not a list.
    """
    prop = find_property(resources, uri, name)
    if prop is None and not any(each.hasAttributeNS(uri, name) for each in resources):
        prop = resources[0].appendChild(make_element(uri, name))
    if prop is not None and not elements(prop) and not text_of(prop).strip():
        prop.appendChild(make_element(RDF_URI, container))
    filled = None if prop is None else list_container(prop)
    if filled is None:
        raise BadMetadata(f"{PREFIXES[uri]}:{name} is not a list")
    for item in items:
        filled.appendChild(item)


def remove_declarations(element: Element, uri: str) -> None:
    """Remove the declarations of a namespace; where it is used, it is declared again when the tree is written."""
    for attribute in list(element.attributes.values()):
        if attribute.namespaceURI == XMLNS_URI and attribute.value == uri:
            element.removeAttributeNode(attribute)
    for child in elements(element):
        remove_declarations(child, uri)
