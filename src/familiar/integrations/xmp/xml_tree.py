"""Parse XML into a tree that can be changed and written back, with all that other programs stored in it.

Prefixes, comments, processing instructions and the order of attributes are kept, which `xml.etree` loses. Document
type declarations are refused, and with them all entity declarations: a few lines of these can fill the memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from familiar.core.errors import BadMetadata

MAX_BYTES = 16 * 2**20  # of a document; a packet with a camera's edits, masks and a preview has some hundred thousand
_MAX_DEPTH = 50  # of elements in each other; XMP needs about ten
_XMLNS = "http://www.w3.org/2000/xmlns/"
_PREDEFINED = {"xml": "http://www.w3.org/XML/1998/namespace", "xmlns": _XMLNS, "": ""}


@dataclass
class Attribute:
    """An attribute. A namespace declaration is one with the prefix `xmlns`, or with that name."""

    prefix: str
    uri: str
    name: str
    value: str

    @property
    def is_declaration(self) -> bool:
        """Whether this declares a namespace."""
        return self.uri == _XMLNS


@dataclass(frozen=True)
class Markup:
    """A comment or a processing instruction, as it is written."""

    text: str


@dataclass
class Element:
    """An element: its name with its namespace, its attributes and what is between its tags.

    Attributes:
        prefix: as in the file; declared again when the tree is written, if the element has moved out of its scope.
        uri: the namespace.
        name: the name without the prefix.
        attributes: in the file's order.
        children: elements, text, comments and processing instructions.
    """

    prefix: str
    uri: str
    name: str
    attributes: list[Attribute] = field(default_factory=list[Attribute])
    children: list["Element | Markup | str"] = field(default_factory=list["Element | Markup | str"])

    @property
    def elements(self) -> list["Element"]:
        """The elements among the children."""
        return [child for child in self.children if isinstance(child, Element)]

    @property
    def text(self) -> str:
        """The text directly between the tags."""
        return "".join(child for child in self.children if isinstance(child, str))

    def has_name(self, uri: str, name: str) -> bool:
        """Whether this is the element `name` of a namespace."""
        return self.name == name and self.uri == uri

    def find(self, uri: str, name: str) -> "Element | None":
        """Return the first child element with a name."""
        return next((child for child in self.elements if child.has_name(uri, name)), None)

    def attribute(self, uri: str, name: str) -> Attribute | None:
        """Return the attribute with a name."""
        return next((each for each in self.attributes if each.name == name and each.uri == uri), None)

    def remove(self, child: "Element") -> None:
        """Remove a child element."""
        self.children = [other for other in self.children if other is not child]


@dataclass
class Document:
    """An XML document: the root element, and comments and processing instructions before and after it.

    Attributes:
        before: what precedes the root.
        root: the root element.
        after: what follows it.
        is_declared: whether the document begins with <?xml ...?>.
    """

    before: list[Markup]
    root: Element
    after: list[Markup]
    is_declared: bool = False


def declaration(prefix: str, uri: str) -> Attribute:
    """Return the attribute that declares a namespace."""
    return Attribute("xmlns", _XMLNS, prefix, uri) if prefix else Attribute("", _XMLNS, "xmlns", uri)


def parse_xml(data: bytes) -> Document:
    """Parse a document in any encoding that it declares.

    Raises:
        BadMetadata: it is not well-formed, too large, nested too deeply, or has a document type declaration.
    """
    if len(data) > MAX_BYTES:
        raise BadMetadata(f"has {len(data):,} bytes, more than the limit of {MAX_BYTES:,}")
    return _Parser().parse(data)


def write_xml(document: Document) -> bytes:
    """Write a document in UTF-8. Namespaces are declared where the tree's own declarations do not."""
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n'] if document.is_declared else []
    parts += [f"{markup.text}\n" for markup in document.before]
    _write_element(document.root, _PREDEFINED, parts)
    parts += [f"\n{markup.text}" for markup in document.after]
    return "".join(parts).encode()


class _Parser:
    """The state of expat's handlers."""

    def __init__(self) -> None:
        self._open: list[Element] = []
        self._scopes: list[Mapping[str, str]] = [_PREDEFINED]
        self._document = Document([], Element("", "", ""), [])
        self._has_root = False

    def parse(self, data: bytes) -> Document:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.ordered_attributes = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = lambda text: self._add(Markup(f"<!--{text}-->"))
        parser.ProcessingInstructionHandler = lambda name, text: self._add(Markup(f"<?{name} {text}?>"))
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.XmlDeclHandler = self._declare
        try:
            parser.Parse(data, True)
        except (expat.ExpatError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
            raise BadMetadata(f"is not valid XML ({error})") from error
        return self._document

    def _declare(self, *_: object) -> None:
        self._document.is_declared = True

    def _refuse_doctype(self, *_: object) -> None:
        raise BadMetadata("declares a document type or entities, which XMP never needs")

    def _start(self, tag: str, flat_attributes: list[str]) -> None:
        if len(self._open) >= _MAX_DEPTH:
            raise BadMetadata(f"nests more than {_MAX_DEPTH} elements in each other")
        pairs = list(zip(flat_attributes[::2], flat_attributes[1::2], strict=True))
        declared = {
            name.partition(":")[2]: value for name, value in pairs if name == "xmlns" or name.startswith("xmlns:")
        }
        scope = {**self._scopes[-1], **declared} if declared else self._scopes[-1]
        attributes = [self._attribute(scope, name, value) for name, value in pairs]
        prefix, name = _split(tag)
        element = Element(prefix, _resolve(scope, prefix), name, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._document.root, self._has_root = element, True
        self._open.append(element)
        self._scopes.append(scope)

    @staticmethod
    def _attribute(scope: Mapping[str, str], qualified: str, value: str) -> Attribute:
        if qualified == "xmlns":
            return Attribute("", _XMLNS, "xmlns", value)
        prefix, name = _split(qualified)
        return Attribute(prefix, _resolve(scope, prefix) if prefix else "", name, value)

    def _end(self, _: str) -> None:
        self._open.pop()
        self._scopes.pop()

    def _text(self, text: str) -> None:
        self._open[-1].children.append(text)

    def _add(self, markup: Markup) -> None:
        if self._open:
            self._open[-1].children.append(markup)
        else:
            (self._document.after if self._has_root else self._document.before).append(markup)


def _split(qualified: str) -> tuple[str, str]:
    prefix, colon, name = qualified.partition(":")
    return (prefix, name) if colon else ("", qualified)


def _resolve(scope: Mapping[str, str], prefix: str) -> str:
    if prefix not in scope:
        raise BadMetadata(f"is not valid XML (the prefix {prefix} is not declared)")
    return scope[prefix]


def _write_element(element: Element, outer_scope: Mapping[str, str], parts: list[str]) -> None:
    scope = dict(outer_scope)
    for attribute in element.attributes:
        if attribute.is_declaration:
            scope["" if attribute.name == "xmlns" else attribute.name] = attribute.value
    declarations: list[Attribute] = []
    for named in (element, *element.attributes):
        needs_prefix = named is element or named.prefix
        if needs_prefix and named.uri != _XMLNS and scope.get(named.prefix) != named.uri:
            scope[named.prefix] = named.uri
            declarations.append(declaration(named.prefix, named.uri))
    tag = _qualified(element)
    attributes = "".join(
        f' {_qualified(attribute)}="{_escape_value(attribute.value)}"'
        for attribute in (*declarations, *element.attributes)
    )
    if not element.children:
        parts.append(f"<{tag}{attributes}/>")
        return
    parts.append(f"<{tag}{attributes}>")
    for child in element.children:
        if isinstance(child, Element):
            _write_element(child, scope, parts)
        else:
            parts.append(child.text if isinstance(child, Markup) else _escape(child))
    parts.append(f"</{tag}>")


def _qualified(named: Element | Attribute) -> str:
    return f"{named.prefix}:{named.name}" if named.prefix else named.name


def _escape(text: str) -> str:
    """Escape text; a carriage return would be read as a line feed."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")


def _escape_value(value: str) -> str:
    """Escape the value of an attribute; a line feed or a tab would be read as a space."""
    return _escape(value).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
