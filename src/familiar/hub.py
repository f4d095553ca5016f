"""Publish a bundle on the Hugging Face Hub, with a model card and its weights as safetensors."""

import json
from pathlib import Path
from typing import Any

from familiar.core import run_files
from familiar.core.errors import BadBundle, FamiliarError
from familiar.core.terminal_text import one_line
from familiar.embedding.bundle import Bundle, load_bundle, network_bytes
from familiar.embedding.hub_download import NEEDS_HUB

__all__ = ["model_card", "push", "weights"]

CARD = "README.md"
WEIGHTS = "model.safetensors"
TAGS = ("familiar-faces", "face-recognition", "re-identification", "metric-learning", "onnx")
SPDX_LICENSES = frozenset({"apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc0-1.0"})
CARD_TEXT = """---
{front}
---

# {name}

Faces as unit vectors of {metadata.embedding_dim} numbers: recipe {metadata.recipe}, network {metadata.network},
{metadata.precision}; crops of {metadata.preprocessing.size_px} px, detector {metadata.detector}.

```sh
pip install 'familiar-faces[hub]'
familiar verify a.jpg b.jpg --model hf://{repository}
```

## Results

{results}

## Training data

| data set | identities | photos |
|---|--:|--:|
{trained_on}

## License

{metadata.license}

## Files

- `model.onnx`: the bundle, with thresholds and preprocessing; SHA-256 of its network: `{file_id}`
- `model.safetensors`: the weights
"""
METRICS = {"auc": "ROC AUC", "recall_at_1": "recall@1", "accuracy": "accuracy", "eer": "equal error rate"}


def push(bundle: Path | str | Bundle, repository: str, *, private: bool = False, message: str | None = None) -> str:
    """Publish a bundle: `model.onnx`, `model.safetensors` with its weights, and a model card, in one commit.

    The repository is created if it is missing. Others use it by the name `hf://ORG/REPO`.

    Args:
        bundle: a bundle, or its file, run folder or name.
        repository: `ORG/REPO`.
        private: whether a new repository can be seen by its owners only.
        message: of the commit.

    Returns:
        The name of the bundle with its commit: `hf://ORG/REPO@COMMIT`.

    Raises:
        BadBundle: there is no such bundle.
        FamiliarError: the Hub refuses or cannot be reached, or a package of the extra `hub` is not installed.
    """
    try:
        import huggingface_hub as hub
    except ModuleNotFoundError as error:
        raise FamiliarError(NEEDS_HUB) from error
    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    repository = repository.removeprefix("hf://")
    files = {CARD: model_card(opened, repository).encode(), run_files.BUNDLE: opened.onnx, WEIGHTS: weights(opened)}
    api = hub.HfApi()
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.create_commit(
            repository,
            [hub.CommitOperationAdd(name, content) for name, content in files.items()],
            commit_message=message or f"Bundle {opened.file_id[:12]}",
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise FamiliarError(
            f"hf://{repository}: cannot be published ({one_line(str(error))}); log in with hf auth login"
        ) from error
    return f"hf://{repository}@{commit.oid}"


def weights(bundle: Bundle) -> bytes:
    """Return a bundle's weights in the safetensors format: those of its run where it is beside them, or the network's.

    Args:
        bundle: that was read from a file.

    Raises:
        FamiliarError: onnx or safetensors is not installed.
    """
    trained = bundle.path.with_name(run_files.EMBEDDER_WEIGHTS)
    if bundle.path.name == run_files.BUNDLE and trained.is_file():
        return trained.read_bytes()
    try:
        import onnx
        from safetensors.numpy import save
    except ModuleNotFoundError as error:
        raise FamiliarError(f"this needs {error.name}: pip install 'familiar-faces[hub]'") from error
    graph = onnx.load_model_from_string(network_bytes(bundle)).graph
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor).copy() for tensor in graph.initializer}
    try:
        return save(tensors, {"format": "onnx"})
    except (KeyError, ValueError) as error:
        raise BadBundle(f"{bundle.path}: its weights have a type that safetensors lacks ({error})") from error


def model_card(bundle: Bundle, repository: str) -> str:
    """Write the model card: front matter with license, tags and metrics, and how to use the bundle.

    Args:
        bundle: what the card is about.
        repository: `ORG/REPO`.
    """
    metadata, name = bundle.metadata, repository.rpartition("/")[2]
    results = {title: metadata.results[key] for key, title in METRICS.items() if _is_number(metadata.results.get(key))}
    license_id = metadata.license.lower()
    front: dict[str, Any] = {
        "library_name": "familiar-faces",
        "pipeline_tag": "image-feature-extraction",
        "tags": TAGS,
        "license": license_id if license_id in SPDX_LICENSES else "other",
    }
    if front["license"] == "other":
        front |= {"license_name": "as-stated", "license_link": "#license"}
    if results:
        photos = {"name": str(metadata.results.get("on", "held-out identities")), "type": "held-out"}
        metrics = [
            {"type": title.lower().replace(" ", "_"), "name": title, "value": round(value, 4)}
            for title, value in results.items()
        ]
        result = {"task": {"type": front["pipeline_tag"]}, "dataset": photos, "metrics": metrics}
        front["model-index"] = [{"name": name, "results": [result]}]
    trained_on = sorted(metadata.trained_on.items())
    return CARD_TEXT.format(
        # JSON is YAML, whose writer would be one more dependency.
        front="\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items()),
        name=name,
        repository=repository,
        metadata=metadata,
        results="\n".join(f"- {title}: {value:.4f}" for title, value in results.items()) or "The bundle states none.",
        trained_on="\n".join(f"| {each} | {n['identities']:,} | {n['photos']:,} |" for each, n in trained_on),
        file_id=bundle.file_id,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
