"""Names in Picasa's `.picasa.ini`."""

import pytest

from familiar.integrations.xmp.picasa import read_picasa_ini

# As in the format's description: rect64 has no leading zeros, and "ffffffffffffffff" is a face that nobody named.
INI = """[Picasa]
name=Foo Bar birthday
[Contacts2]
8e62398ebda8c1a5=Zoë Müller;;
d736528ba71f2254=Tom;tom@example.org;
0123456789abcdef=Ann;;
[IMG_1.JPG]
star=yes
rotate=rotate(1)
faces=rect64(3f845bcb59418507),8e62398ebda8c1a5;rect64(80004000c000),ffffffffffffffff;rect64(9eb15bcb),d736528ba71f2254
backuphash=47031
[other.jpg]
faces=rect64(0000000080008000),123456789abcdef;rect64(1000100020002000),1111111111111111
"""


def test_reads_names_and_boxes():
    regions = read_picasa_ini(INI.encode())
    assert {photo: [region.name for region in marked] for photo, marked in regions.items()} == {
        "img_1.jpg": ["Zoë Müller", "Tom"],
        "other.jpg": ["Ann", ""],
    }
    sides = [0x3F84, 0x5BCB, 0x5941, 0x8507]
    assert regions["img_1.jpg"][0].box == pytest.approx([side / 65535 for side in sides])
    assert regions["img_1.jpg"][1].box == pytest.approx([0, 0, 0x9EB1 / 65535, 0x5BCB / 65535])


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\0[", b"[a]\nfaces=rect64(xyz),12;nonsense\n", b"faces=\n[", b"]"])
def test_ignores_what_is_no_face(content: bytes):
    assert not any(read_picasa_ini(content).values())
