"""XMP packets are read without entities, and written back with everything that other programs stored in them."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadMetadata
from familiar.integrations.xmp.rdf import MAX_BYTES, parse_packet, set_field, write_packet

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
BILLION_LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><r>&b;</r>"""
# Of the characters that XML can contain; a carriage return is written as a reference.
text = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\t\n\r<>&\"'"), max_size=20).filter(
    lambda text: "\ufffe" not in text and "\uffff" not in text
)


def packet(content: str, attributes: str = "") -> bytes:
    return f'<rdf:RDF xmlns:rdf="{RDF}"><rdf:Description {attributes}>{content}</rdf:Description></rdf:RDF>'.encode()


def rewritten(data: bytes) -> str:
    """Parse and write a packet; return it without its wrapper."""
    root, _ = parse_packet(data)
    lines = write_packet(root).decode().splitlines()
    assert lines[0] == '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
    assert lines[-1] == '<?xpacket end="w"?>'
    return "\n".join(lines[1:-1])


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (BILLION_LAUGHS, "entities"),
        (BILLION_LAUGHS.decode().encode("utf-16"), "entities"),
        (b'<!DOCTYPE r SYSTEM "file:///etc/passwd"><r/>', "entities"),
        (b"no XML", "not valid XML"),
        (b"", "not valid XML"),
        (b"<a><b></a></b>", "not valid XML"),
        (b"<a>&undefined;</a>", "not valid XML"),
        (b"<p:a/>", "unbound prefix"),
        (b'<a p:b="1"/>', "unbound prefix"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "not valid XML"),
        (b"<a>\xff\xfe</a>", "not valid XML"),
        (b" " * (MAX_BYTES + 1), "more than the limit"),
        (b"<a/>", "not XMP"),
    ],
)
def test_rejects_hostile_and_broken_packets(content: bytes, cause: str):
    with pytest.raises(BadMetadata, match=cause):
        parse_packet(content)


def test_rejects_too_deep_packets():
    root, _ = parse_packet(packet("<a>" * 100_000 + "</a>" * 100_000))
    with pytest.raises(BadMetadata, match="nests too many"):
        write_packet(root)


def test_keeps_prefixes_comments_instructions_and_line_ends():
    content = '<p:b c="&#10;&#09;">t&lt;&#13;\n<!-- e --><?pi f?></p:b>'
    assert f">{content}<" in rewritten(packet(content, 'xmlns:p="u"'))
    assert 'xmlns:p="u"' in rewritten(packet(content, 'xmlns:p="u"'))
    assert ">&lt;&amp;&gt;<" in rewritten(packet("<a><![CDATA[<&>]]></a>"))


@pytest.mark.parametrize("prefix", ["ns0", "rdf", "xmp", "dc"])
def test_any_prefixes_are_written_so_that_they_can_be_read(prefix: str):
    data = packet(f'<{prefix}:b xmlns:{prefix}="u" {prefix}:c="1"/><d xmlns="v"/>')
    assert ElementTree.canonicalize(rewritten(data), rewrite_prefixes=True) == ElementTree.canonicalize(
        data.decode(), rewrite_prefixes=True
    )
    assert "<rdf:RDF" in rewritten(packet(""))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_writes_utf_8_for_every_encoding(encoding: str):
    declaration = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>'
    assert "Zoë" in rewritten(f"{declaration}{packet('<a>Zoë</a>').decode()}".encode(encoding))


@given(text, text)
def test_any_text_and_attribute_are_read_back(content: str, value: str):
    root, rdf = parse_packet(packet("<dc:subject/>", 'xmlns:dc="http://purl.org/dc/elements/1.1/"'))
    set_field(rdf, "dc:subject", content)
    set_field(rdf, "dc:title", value)
    reference = ElementTree.fromstring(write_packet(root))[0]
    assert (reference[0].text or "") == content
    assert reference.get("{http://purl.org/dc/elements/1.1/}title") == value
