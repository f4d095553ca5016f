"""RDF as XMP packets contain it: properties, structures and lists, each in the notations that RDF allows."""

from collections.abc import Sequence

from familiar.core.errors import BadMetadata
from familiar.integrations.xmp.xml_tree import Attribute, Document, Element, Markup

MARKER_URI = "urn:familiar-faces:names:1.0/"
MWG_URI = "http://www.metadataworkinggroup.com/schemas/regions/"
AREA_URI = "http://ns.adobe.com/xmp/sType/Area#"
DIMENSIONS_URI = "http://ns.adobe.com/xap/1.0/sType/Dimensions#"
DC_URI = "http://purl.org/dc/elements/1.1/"
DIGIKAM_URI = "http://www.digikam.org/ns/1.0/"
LIGHTROOM_URI = "http://ns.adobe.com/lightroom/1.0/"
_X = "adobe:ns:meta/"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
PREFIXES = {
    MARKER_URI: "familiar",
    _X: "x",
    _RDF: "rdf",
    MWG_URI: "mwg-rs",
    AREA_URI: "stArea",
    DIMENSIONS_URI: "stDim",
    DC_URI: "dc",
    DIGIKAM_URI: "digiKam",
    LIGHTROOM_URI: "lr",
}
"""Of each namespace of the elements that are made: the usual prefix."""


def new_document() -> Document:
    """Make an XMP packet without properties."""
    description = make_element(_RDF, "Description")
    description.attributes.append(Attribute("rdf", _RDF, "about", ""))
    root = make_element(_X, "xmpmeta", make_element(_RDF, "RDF", description))
    begin, end = (Markup(f"<?xpacket {text}?>") for text in ('begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"', 'end="w"'))
    return Document([begin], root, [end])


def resources_of(document: Document) -> list[Element]:
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
        resources = [make_element(_RDF, "Description")]
        resources[0].attributes.append(Attribute("rdf", _RDF, "about", ""))
        rdf.children += resources
    return resources


def make_element(uri: str, name: str, *children: "Element | str") -> Element:
    """Make an element with the usual prefix of its namespace."""
    return Element(PREFIXES[uri], uri, name, children=list(children))


def make_struct(uri: str, name: str, *children: Element) -> Element:
    """Make an element that contains the fields of a structure."""
    struct = make_element(uri, name, *children)
    struct.attributes.append(Attribute("rdf", _RDF, "parseType", "Resource"))
    return struct


def find_property(resources: Sequence[Element], uri: str, name: str) -> Element | None:
    """Return the element of a property, if there is one."""
    return next((child for resource in resources if (child := resource.find(uri, name)) is not None), None)


def remove_property(resources: Sequence[Element], child: Element) -> None:
    """Remove the element of a property."""
    for resource in resources:
        if any(element is child for element in resource.elements):
            resource.remove(child)


def has_content(resource: Element) -> bool:
    """Whether an `rdf:Description` has any property."""
    return bool(resource.elements) or any(
        not attribute.is_declaration and attribute.uri != _RDF for attribute in resource.attributes
    )


def field_nodes(struct: Element) -> list[Element]:
    """Return the elements that the fields of a structure may be in: itself, or an rdf:Description in it."""
    return [struct, *(child for child in struct.elements if child.has_name(_RDF, "Description"))]


def field_text(struct: Element, uri: str, name: str) -> str | None:
    """Return the text of a field, which may be an element or an attribute."""
    for node in field_nodes(struct):
        if (element := node.find(uri, name)) is not None:
            return element.text
        if (attribute := node.attribute(uri, name)) is not None:
            return attribute.value
    return None


def field_element(struct: Element, uri: str, name: str) -> Element | None:
    """Return a field that is a structure or a list."""
    return next((child for node in field_nodes(struct) if (child := node.find(uri, name)) is not None), None)


def set_field(struct: Element, uri: str, name: str, text: str, prefix: str) -> None:
    """Replace the text of a field, or add it; `prefix` is for a new one."""
    for node in field_nodes(struct):
        if (element := node.find(uri, name)) is not None:
            element.children = [text]
            return
        if (attribute := node.attribute(uri, name)) is not None:
            attribute.value = text
            return
    node = field_nodes(struct)[-1]
    if node is struct and node.attribute(_RDF, "parseType") is None:  # all its fields are attributes
        node.attributes.append(Attribute(prefix, uri, name, text))
    else:
        node.children.append(Element(prefix, uri, name, children=[text]))


def remove_field(struct: Element, uri: str, name: str) -> None:
    """Remove a field of a structure."""
    for node in field_nodes(struct):
        if (element := node.find(uri, name)) is not None:
            node.remove(element)
        node.attributes = [each for each in node.attributes if (each.uri, each.name) != (uri, name)]


def list_container(prop: Element) -> Element | None:
    """Return the rdf:Bag, rdf:Seq or rdf:Alt of a list."""
    return next((child for child in prop.elements if child.uri == _RDF and child.name in ("Bag", "Seq", "Alt")), None)


def list_items(prop: Element | None) -> list[Element]:
    """Return the items of a list; none if it is missing."""
    container = None if prop is None else list_container(prop)
    return [] if container is None else [child for child in container.elements if child.has_name(_RDF, "li")]


def fill_list(resources: Sequence[Element], uri: str, name: str, container: str, items: Sequence[Element]) -> None:
    """Append items to the list of a property; it is made if it is missing.

    Raises:
        BadMetadata: the property is not a list.
    """
    prop = find_property(resources, uri, name)
    if prop is None:
        if any(each.attribute(uri, name) for each in resources):
            raise BadMetadata(f"{PREFIXES[uri]}:{name} is not a list")
        prop = make_element(uri, name)
        resources[0].children.append(prop)
    if not prop.elements and not prop.text.strip():
        prop.children = [make_element(_RDF, container)]
    filled = list_container(prop)
    if filled is None:
        raise BadMetadata(f"{PREFIXES[uri]}:{name} is not a list")
    filled.children += items


def make_item(text: str) -> Element:
    """Make an item of a list."""
    return make_element(_RDF, "li", text)


def make_bag(*items: Element) -> Element:
    """Make the container of a list without an order."""
    return make_element(_RDF, "Bag", *items)


def make_struct_item(*fields: Element) -> Element:
    """Make an item of a list that is a structure."""
    return make_struct(_RDF, "li", *fields)


def remove_item(prop: Element | None, item: Element) -> None:
    """Remove an item from the list that it is in."""
    container = None if prop is None else list_container(prop)
    assert container is not None, "the item comes from the list"
    container.remove(item)


def remove_declarations(element: Element, uri: str) -> None:
    """Remove the declarations of a namespace; where it is used, it is declared again when the tree is written."""
    element.attributes = [each for each in element.attributes if not each.is_declaration or each.value != uri]
    for child in element.elements:
        remove_declarations(child, uri)
