"""Bundles that distinguish colors, and a classifier by which red is a cat, green a dog and blue a person."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from familiar.conversion.pixel_input import take_pixels
from familiar.core.types import Photo
from familiar.embedding.bundle import BundleMetadata, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.species.classifier import HeldOutAccuracy, SpeciesClassifier
from familiar.embedding.species.router import RoutedEmbedder
from familiar.photos.decoding import save_photo

NAMES = ("cat", "dog", "person")


def mosaic_bundle(path: Path, like: BundleMetadata, size_px: int = 48, color_order: str = "RGB") -> Path:
    """Write a bundle whose embedding is the mean colors of squares of 16 px: (size_px / 16)^2 * 3 numbers."""
    nodes = [
        helper.make_node("AveragePool", ["images"], ["means"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("LpNormalization", ["flat"], ["embeddings"]),
    ]
    dim = 3 * (size_px // 16) ** 2
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, size_px, size_px])
    embeddings = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["n", dim])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [images], [embeddings]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    )
    preprocessing = replace(like.preprocessing, size_px=size_px, resize_px=size_px, color_order=color_order)  # type: ignore[arg-type]
    metadata = replace(
        like, space_id=f"mosaic-{path.stem}", embedding_dim=dim, prefixes=(dim,), preprocessing=preprocessing
    )
    take_pixels(model, preprocessing)
    path.write_bytes(serialize_bundle(model.SerializeToString(), metadata))
    return path


def color_classifier(space_id: str = "mean-color", names: tuple[str, ...] = NAMES) -> SpeciesClassifier:
    """Create a classifier whose logits are ten times the share of a color in the mean color."""
    return SpeciesClassifier(
        names=names,
        weights=10.0 * np.eye(3),
        bias=np.zeros(3),
        temperature=1.0,
        space_id=space_id,
        training_counts={name: {"identities": 2, "photos": 4} for name in names},
        held_out=HeldOutAccuracy(1.0, ((4, 0, 0, 0), (0, 4, 0, 0), (0, 0, 4, 0))),
    )


def tiny_router(mean_color: Path, folder: Path) -> RoutedEmbedder:
    """Create a router: bundles for cats and dogs differ in size, dimension and color order; people have none."""
    features = Embedder(mean_color, threads=2)
    cat = mosaic_bundle(folder / "cat.onnx", features.metadata, 48)
    dog = mosaic_bundle(folder / "dog.onnx", features.metadata, 64, "BGR")
    return RoutedEmbedder(features, color_classifier(), {"cat": Embedder(cat), "dog": Embedder(dog)})


def colored(rgb: tuple[int, int, int], name: str, size_px: int = 80, seed: int = 0) -> Photo:
    """Draw a photo of nearly one color."""
    noise = np.random.default_rng(seed).normal(0, 8, (size_px, size_px, 3))
    pixels = np.clip(np.array(rgb) + noise, 0, 255).astype(np.uint8)
    return Photo(pixels, name, (size_px, size_px))


def save_colored(path: Path, rgb: tuple[int, int, int], seed: int = 0) -> Path:
    return save_photo(colored(rgb, path.name, seed=seed), path)


def reseal_router(path: Path, *removed: str, **changed: Any) -> None:
    """Change and remove fields of a router file and update the checksum."""
    stored = json.loads(path.read_bytes()) | changed
    for name in (*removed, "sha256"):
        del stored[name]

    def canonical() -> bytes:
        return json.dumps(stored, sort_keys=True, separators=(",", ":")).encode()

    stored["sha256"] = hashlib.sha256(canonical()).hexdigest()
    path.write_bytes(canonical())
