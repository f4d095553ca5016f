"""XML is read without entities, and written back with everything that it contained."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadMetadata
from familiar.integrations.xmp.xml_text import MAX_BYTES, parse_xml, write_xml

BILLION_LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><r>&b;</r>"""
# Of the characters that XML can contain; a carriage return is written as a reference.
text = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\t\n\r<>&\"'"), max_size=20).filter(
    lambda text: "\ufffe" not in text and "\uffff" not in text
)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (BILLION_LAUGHS, "entities"),
        (b'<!DOCTYPE r SYSTEM "file:///etc/passwd"><r/>', "entities"),
        (b"no XML", "not valid XML"),
        (b"", "not valid XML"),
        (b"<a><b></a></b>", "not valid XML"),
        (b"<a>&undefined;</a>", "not valid XML"),
        (b"<p:a/>", "unbound prefix"),
        (b'<a p:b="1"/>', "unbound prefix"),
        (b"<a>" * 51 + b"</a>" * 51, "nests more than 50"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "not valid XML"),
        (b"<a>\xff\xfe</a>", "not valid XML"),
        (b" " * (MAX_BYTES + 1), "more than the limit"),
    ],
)
def test_rejects_hostile_and_broken_documents(content: bytes, cause: str):
    with pytest.raises(BadMetadata, match=cause):
        parse_xml(content)


def test_keeps_prefixes_comments_instructions_and_cdata():
    content = (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<?xpacket begin="\xef\xbb\xbf" id="W5"?>\n<!-- a -->\n'
        b'<x:a xmlns:x="u" xmlns="v" x:c="1" d="&#10;&#9;"><b/>t&lt;<!-- e --><?pi f?>\n</x:a>'
        b'\n<?xpacket end="w"?>'
    )
    assert write_xml(parse_xml(content)) == content
    assert write_xml(parse_xml(b"<a><![CDATA[<&>]]>&#13;</a>")) == b"<a><![CDATA[<&>]]>&#13;</a>"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_writes_utf_8_for_every_encoding(encoding: str):
    declaration = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>'
    written = write_xml(parse_xml(f"{declaration}<a>Zoë</a>".encode(encoding)))
    assert written == '<?xml version="1.0" encoding="UTF-8"?>\n<a>Zoë</a>'.encode()


def test_declares_namespaces_of_moved_elements():
    document = parse_xml(b"<a/>")
    assert document.documentElement
    for content in (b'<p:b xmlns:p="u" xmlns:q="w" q:c="1"/>', b'<d xmlns="v"/>'):
        moved = parse_xml(content).documentElement
        assert moved
        for attribute in list(moved.attributes.values()):
            if attribute.name.startswith("xmlns"):
                moved.removeAttributeNode(attribute)
        document.documentElement.appendChild(moved)
    assert write_xml(document) == b'<a><p:b xmlns:q="w" xmlns:p="u" q:c="1"/><d xmlns="v"/></a>'


@given(text, text)
def test_any_text_and_attribute_are_read_back(content: str, value: str):
    document = parse_xml(b'<p:a xmlns:p="u" b=""/>')
    assert document.documentElement
    document.documentElement.setAttribute("b", value)
    document.documentElement.appendChild(document.createTextNode(content))
    written = write_xml(document)
    root = parse_xml(written).documentElement
    assert root
    assert root.getAttribute("b") == value
    reference = ElementTree.fromstring(written)
    assert (reference.text or "", reference.attrib) == (content, {"b": value})
