"""`familiar cluster`: clusters of the faces in a folder of Parquet files."""

import json
from pathlib import Path

from familiar.embedding.embedder import Embedder
from support.cli import Familiar
from support.embedded_faces import write_faces


def test_command(familiar: Familiar, tmp_path: Path):
    write_faces(tmp_path / "faces", Embedder("pet-nano"))
    command = ("cluster", tmp_path / "faces", "--model", "pet-nano", "-o", tmp_path / "clusters.parquet")
    done = familiar(*command)
    assert done.code == 0, done.err
    assert done.out.startswith("all faces: 240 faces in 40 clusters; threshold 0.")
    assert done.out.endswith(f", estimated from the faces\n{tmp_path / 'clusters.parquet'} written\n")
    (species,) = json.loads(familiar(*command, "--json").out)["species"]
    assert (species["faces"], species["clusters"]) == (240, 40)
    wrong = familiar(*command, "--share", "3/2")
    assert wrong.code == 2
    assert "3/2 is not a share such as 2/8" in wrong.err
