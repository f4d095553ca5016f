"""Print the oldest photo of everybody with a name in a gallery, and whether the newest still looks like it.

python oldest_photo.py ALBUM
"""

import sys
from datetime import datetime

from familiar import FamiliarError, Gallery


def main(album: str) -> None:
    with Gallery.open(album) as gallery:
        for identity, name in gallery.names().items():
            dated = {face.taken_at: face for face in gallery.faces(identity=identity) if face.taken_at}
            if not dated:
                print(f"{name}: no photo says when it was taken")
                continue
            oldest, newest = dated[min(dated)], dated[max(dated)]
            years = (datetime.fromisoformat(max(dated)) - datetime.fromisoformat(min(dated))).days / 365.25
            similarity = gallery.face_embedding(oldest.face) @ gallery.face_embedding(newest.face)
            print(f"{name}: {oldest.path}, {min(dated)[:10]}; similarity {similarity:.2f} after {years:.1f} years")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except FamiliarError as error:
        sys.exit(str(error))
