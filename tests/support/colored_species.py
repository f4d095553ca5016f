"""Bundles for cats, which are red, and dogs, which are green, and a detector that tells them by their color."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from familiar.conversion.pixel_input import take_pixels
from familiar.core.types import LABELS, Face, Photo
from familiar.detection.detectors import WholePhoto
from familiar.embedding.bundle import BundleMetadata, load_bundle, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.photos.decoding import save_photo


class ByColor(WholePhoto):
    """The whole photo is a face: a red one of a cat, a green one of a dog, a blue one of a person."""

    labels = frozenset(LABELS)

    def detect(self, photo: Photo) -> list[Face]:
        label = LABELS[int(photo.rgb_u8.mean(axis=(0, 1)).argmax())]
        return [replace(face, label=label) for face in super().detect(photo)]


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


def tiny_species(mean_color: Path, folder: Path) -> Embedder:
    """Create an embedder whose bundles for cats and dogs differ in size, dimension and color order; for people none."""
    metadata = load_bundle(mean_color).metadata
    cat = mosaic_bundle(folder / "cat.onnx", metadata, 48)
    dog = mosaic_bundle(folder / "dog.onnx", metadata, 64, "BGR")
    return Embedder({"cat": cat, "dog": dog}, threads=2)


def colored(rgb: tuple[int, int, int], name: str, size_px: int = 80, seed: int = 0) -> Photo:
    """Draw a photo of nearly one color."""
    noise = np.random.default_rng(seed).normal(0, 8, (size_px, size_px, 3))
    pixels = np.clip(np.array(rgb) + noise, 0, 255).astype(np.uint8)
    return Photo(pixels, name, (size_px, size_px))


def save_colored(path: Path, rgb: tuple[int, int, int], seed: int = 0) -> Path:
    return save_photo(colored(rgb, path.name, seed=seed), path)
