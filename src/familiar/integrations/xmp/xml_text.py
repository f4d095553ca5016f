"""Parse XML into a tree of `xml.dom.minidom`, and write it with all that other programs stored in it.

Prefixes, comments, processing instructions and the order of attributes are kept, which `xml.etree` loses. Document
type declarations are refused, and with them all entity declarations: a few lines of these can fill the memory.
"""

from collections.abc import Mapping
from typing import Any
from xml.dom.minidom import CDATASection, Document, Element, Text, parseString
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from familiar.core.errors import BadMetadata

MAX_BYTES = 16 * 2**20  # of a document; a packet with a camera's edits, masks and a preview has some hundred thousand
_MAX_DEPTH = 50  # of elements in each other; XMP needs about ten
XMLNS_URI = "http://www.w3.org/2000/xmlns/"
_PREDEFINED = {"xml": "http://www.w3.org/XML/1998/namespace", "": None}


def parse_xml(data: bytes) -> Document:
    """Parse a document in any encoding that it declares.

    Raises:
        BadMetadata: it is not well-formed, too large, nested too deeply, or has a document type declaration.
    """
    if len(data) > MAX_BYTES:
        raise BadMetadata(f"has {len(data):,} bytes, more than the limit of {MAX_BYTES:,}")
    depth = 0

    def enter(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise BadMetadata(f"nests more than {_MAX_DEPTH} elements in each other")

    def leave(_: object) -> None:
        nonlocal depth
        depth -= 1

    def refuse_doctype(*_: object) -> None:
        raise BadMetadata("declares a document type or entities, which XMP never needs")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = enter, leave
    parser.StartDoctypeDeclHandler = refuse_doctype
    try:
        parser.Parse(data, True)
        return parseString(data)
    except (expat.ExpatError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
        raise BadMetadata(f"is not valid XML ({error})") from error


def write_xml(document: Document) -> bytes:
    """Write a document in UTF-8. Namespaces are declared where the tree's own declarations do not."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>'] if document.version else []
    return "\n".join([*lines, *(_written(node, _PREDEFINED) for node in document.childNodes)]).encode()


def _written(node: Any, scope: Mapping[str, str | None]) -> str:
    if isinstance(node, Text) and not isinstance(node, CDATASection):
        return escape(node.data, {"\r": "&#13;"})  # which would be read as a line feed
    if not isinstance(node, Element):
        return node.toxml()
    attributes = list(node.attributes.values())
    texts = {each.name: each.value for each in attributes}
    declarations = [each for each in attributes if each.namespaceURI == XMLNS_URI]
    scope = {**scope, **{each.localName if each.prefix else "": each.value for each in declarations}}
    for each in (node, *(each for each in attributes if each.prefix and each not in declarations)):
        prefix = each.prefix or ""
        if scope.get(prefix) != each.namespaceURI and each.namespaceURI is not None:
            scope[prefix] = each.namespaceURI
            texts = {f"xmlns:{prefix}" if prefix else "xmlns": each.namespaceURI} | texts
    tag = node.tagName + "".join(f" {name}={quoteattr(value)}" for name, value in texts.items())
    content = "".join(_written(child, scope) for child in node.childNodes)
    return f"<{tag}>{content}</{node.tagName}>" if content else f"<{tag}/>"
