"""Names of bundles, and requirements for every shipped bundle."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadBundle
from familiar.datasets.folders import DataSpec, open_photo
from familiar.embedding import zoo
from familiar.embedding.bundle import load_bundle, resolve_model
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos

MAX_BYTES = {"person-nano": 308_000, "person-mobile": 4_000_000, "pet-nano": 308_000, "pet-mobile": 4 * 2**20}
# What shipped weights may learn from: people of ORL and LFW, synthetic pets, and pets without labels, which
# benchmarks/unlabeled_pets.py cuts out; the cards name the terms.
SHIPPABLE = re.compile(
    r"orl_faces|lfw_112|dogfacenet900|synthetic:\w+|(cat|dog)_heads|(head|pet)_photos|other_animals|cat_faces"
)
FOREIGN_TEACHERS = {  # by embedding space
    "1ffe85641fc1aafab4f65abf355e9345": "SFace",
    "b713ed7e5840a383418bbfd89a66a730": "EfficientNet-Lite1",
    "26cfd3b66a02f46982fdc70187459ea6": "EfficientNet-Lite2",
}
SECTIONS = ("Data", "Results", "Limits", "Who it fails on", "License")


@pytest.fixture
def our_zoo(mean_color_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a zoo of two bundles, and an empty working directory."""
    folder, working_directory = tmp_path / "zoo", tmp_path / "here"
    folder.mkdir()
    working_directory.mkdir()
    for name in ("color", "another"):
        shutil.copy(mean_color_bundle, folder / f"{name}.onnx")
        (folder / f"{name}.md").write_text(f"# {name}\n")
    (folder / "planned.md").write_text("# planned\n")
    monkeypatch.setattr(zoo, "FOLDER", folder)
    monkeypatch.chdir(working_directory)
    return folder


def test_name_resolves_to_shipped_bundle(our_zoo: Path):
    assert resolve_model("color") == resolve_model(Path("color")) == our_zoo / "color.onnx"
    assert Embedder("color").metadata.space_id == "mean-color"
    assert list(zoo.shipped_bundles()) == ["another", "color"]
    assert zoo.model_card("color") == "# color\n"


@pytest.mark.usefixtures("our_zoo")
def test_local_file_takes_precedence_over_shipped_bundle():
    local = Path("color")
    local.write_bytes(b"the user's own")
    assert resolve_model("color") == local
    with pytest.raises(BadBundle, match="not a familiar bundle"):
        load_bundle("color")


def test_local_folder_takes_precedence_over_shipped_bundle(our_zoo: Path):
    run = Path("color")
    run.mkdir()
    with pytest.raises(BadBundle, match="color: no bundle found"):
        resolve_model("color")
    shutil.copy(our_zoo / "another.onnx", run / "model.onnx")
    assert resolve_model("color") == run / "model.onnx"


def test_run_without_bundle_says_how_to_go_on(tmp_path: Path):
    (tmp_path / "recipe.json").write_text("{}")
    resume = f"{tmp_path}: this run is not finished; repeat its command with --resume: familiar train ... --output "
    with pytest.raises(BadBundle, match=re.escape(f"{resume}{tmp_path} --resume")):
        resolve_model(tmp_path)
    (tmp_path / "embedder.safetensors").touch()
    with pytest.raises(BadBundle, match=re.escape(f"not exported yet; do so: familiar export {tmp_path} --output")):
        resolve_model(tmp_path)
    (tmp_path / "model.onnx").touch()
    assert resolve_model(tmp_path) == tmp_path / "model.onnx"


@pytest.mark.usefixtures("our_zoo")
@pytest.mark.parametrize("name", ["colors", "planned", "color.onnx", "zoo/color", ""])
def test_rejects_unknown_name_and_lists_shipped_names(name: str):
    with pytest.raises(BadBundle, match=r"no bundle found.*a shipped bundle: another, color$"):
        resolve_model(name)


def test_error_lists_no_names_when_zoo_is_empty(our_zoo: Path):
    shutil.rmtree(our_zoo)
    our_zoo.mkdir()
    with pytest.raises(BadBundle, match=r"the folder of a finished run$"):
        resolve_model("color")


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.shipped_bundles())
def test_shipped_bundle_embeds_distinct_photos(name: str):
    photos = DataSpec(("synthetic:cats:3x2",)).read().photos
    embedder = Embedder(name)
    embedded = embed_photos(embedder, photos, "none", open_photo=open_photo)
    assert embedded.embeddings.shape == (6, embedder.metadata.embedding_dim)
    assert len(np.unique(embedded.embeddings.round(3), axis=0)) == 6
    assert embedder.metadata.calibration.fitted, "verify returns a probability"


@pytest.mark.parametrize("name", zoo.shipped_bundles())
def test_shipped_bundle_has_shippable_data_and_license(name: str):
    metadata = load_bundle(name).metadata
    assert metadata.trained_on
    assert [root for root in metadata.trained_on if not SHIPPABLE.fullmatch(root)] == []
    assert not metadata.license.startswith("not stated")


@pytest.mark.parametrize("name", zoo.shipped_bundles())
def test_teachers_are_shipped_or_named_on_the_card(name: str):
    spaces = {load_bundle(shipped).metadata.space_id for shipped in zoo.shipped_bundles()}
    for teacher in load_bundle(name).metadata.taught_by:
        assert teacher in spaces or FOREIGN_TEACHERS[teacher] in zoo.model_card(name)


@pytest.mark.parametrize("name", zoo.shipped_bundles())
def test_bundle_size_is_below_limit(name: str):
    assert zoo.shipped_bundles()[name].stat().st_size <= MAX_BYTES[name]


@pytest.mark.parametrize("name", sorted(path.stem for path in zoo.FOLDER.glob("*.md")))
def test_card_has_all_required_sections(name: str):
    card = (zoo.FOLDER / f"{name}.md").read_text()
    title, *sections = re.split(r"^#+ ", card, flags=re.MULTILINE)[1:]
    assert title.split("\n", 1)[0] == name
    texts = {heading: text.strip() for heading, _, text in (part.partition("\n") for part in sections)}
    assert [section for section in SECTIONS if not texts.get(section)] == []


@pytest.mark.parametrize("name", zoo.shipped_bundles())
def test_card_matches_its_bundle(name: str):
    bundle, card = load_bundle(name), " ".join(zoo.model_card(name).split())
    assert f"{len(bundle.onnx):,} bytes" in card
    assert bundle.metadata.license in card
    assert [root for root in bundle.metadata.trained_on if root not in card] == []
