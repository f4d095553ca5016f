"""The model and the detector of a gallery: it remembers both, and commands that name others are refused."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from familiar.core.errors import BadBundle, CannotWrite, Contradiction, FamiliarError, GalleryBusy, SpaceMismatch
from familiar.core.files import absolute_path
from familiar.core.gallery_types import StoredType
from familiar.core.types import LABELS
from familiar.detection.detector import Detector, labels_of, not_looked_for
from familiar.detection.detectors import CROP_DETECTORS, available_detector
from familiar.embedding.embedder import Embedder
from familiar.embedding.species import FAMILY, Models, pin_shipped
from familiar.gallery.store.model_reference import ModelReference
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store


def create_gallery(
    folder: Path,
    model: Embedder,
    detector: str | None = None,
    detector_model: Path | None = None,
    embedding_dtype: StoredType = "float16",
) -> Store:
    """Create and open an empty gallery, which remembers its model and its detector.

    Args:
        folder: created if missing.
        model: its model.
        detector: the name of its detector; None: the one that the model names.
        detector_model: the detector's file, if it was given.
        embedding_dtype: how embeddings are stored.

    Raises:
        BadDetector: there is no such detector.
        BadGallery, CannotWrite: as for `Store.create`.
    """
    model.detector(detector, detector_model)
    path = None if detector_model is None else str(absolute_path(detector_model))
    name = detector or available_detector(model.detector_name, detector_model)
    reference = ModelReference(model.names, model.species, name, path)
    return Store.create(folder, Space.from_model(model), embedding_dtype=embedding_dtype, reference=reference)


def remember(store: Store, **changes: Any) -> None:
    """Change fields of what a gallery remembers, unless they are so already."""
    if replace(store.model_reference, **changes) != store.model_reference:
        with store.write() as repository:
            settings = repository.settings
            settings.set_model_reference(replace(settings.model_reference(), **changes))


def open_gallery_model(
    store: Store,
    named: Embedder | Models | None = None,
    *,
    providers: Sequence[str] | None = None,
    may_write: bool = True,
) -> Embedder:
    """Open the model of a gallery. If it was given, the gallery remembers where it is now.

    Args:
        store: whose model it is.
        named: the same model, or its file, folder or name; None: the one that the gallery remembers.
        providers: as for `Embedder`.
        may_write: whether it may be remembered.

    Raises:
        BadBundle: there is no such model, or not any more.
        SpaceMismatch: it is another one.
        FamiliarError: the gallery knows none.
    """
    if named is None:
        return _open_remembered(store, providers)
    model = named if isinstance(named, Embedder) else Embedder(named, providers=providers)
    reference = store.model_reference
    try:
        store.check_space(*model.space, to_compare=True)
    except SpaceMismatch as error:
        chosen = " and ".join(model.names) or "a model in memory"
        raise SpaceMismatch(
            f"{store.folder}: its model is {' and '.join(reference.models) or 'another one'}, not {chosen}; leave the "
            "model out, or embed the faces again with the other one: familiar gallery migrate "
            f"{store.folder} {model_arguments(model.names)}"
        ) from error
    if may_write and model.names and model.space[1] >= store.space.embedding_dim:
        # Not where the gallery cannot be written now: the model can be used all the same.
        with contextlib.suppress(CannotWrite, GalleryBusy):
            remember(store, models=model.names, species=model.species)
    return model


def _open_remembered(store: Store, providers: Sequence[str] | None) -> Embedder:
    models = store.model_reference.models
    remedy = f"give its place: --model PATH, or Gallery.open({str(store.folder)!r}, PATH)"
    if not models:
        raise FamiliarError(f"{store.folder}: does not know where its model is; {remedy}")
    try:
        model = Embedder([pin_shipped(each) for each in models], providers=providers)
    except BadBundle as error:
        named = " and ".join(models)
        raise BadBundle(f"{store.folder}: its model {named} cannot be opened; {remedy} ({error})") from error
    try:
        store.check_space(*model.space, to_compare=True)
    except SpaceMismatch as error:
        raise SpaceMismatch(
            f"{store.folder}: {' and '.join(models)} is another model now than the one that the gallery was made "
            f"with; {remedy}; or embed the faces again with this one: familiar gallery migrate {store.folder} "
            f"{model_arguments(models)} ({error})"
        ) from error
    return model


def model_arguments(models: Sequence[str]) -> str:
    """Write models as options of a command.

    >>> model_arguments(("pet-mobile", "person=people.onnx"))
    '--model pet-mobile --model person=people.onnx'
    """
    return " ".join(f"--model {each}" for each in models) or "--model MODEL"


def gallery_detector(
    store: Store,
    model: Embedder,
    chosen: Detector | str | None = None,
    model_path: Path | None = None,
    *,
    for_query: bool = False,
) -> Detector:
    """Return the detector of a gallery.

    Args:
        store: whose photos are searched for faces.
        model: the gallery's.
        chosen: its name; for a query that is a crop also "none" or "center". A detector that was made by the caller is
            returned as it is, and not remembered.
        model_path: the file of the detector, as for `build_detector`; None: the one that the gallery remembers.
        for_query: whether it is for a photo that is compared with the gallery and not stored.

    Raises:
        Contradiction: the faces in the gallery's photos were found by another one.
        BadDetector: as for `build_detector`.
    """
    if chosen is not None and not isinstance(chosen, str):
        return chosen
    reference = store.model_reference
    if chosen is not None and not (for_query and chosen in CROP_DETECTORS):
        _check_detector(store, reference, chosen)
    return build_gallery_detector(model, reference, chosen, model_path)


def command_to_find_more(store: Store, model: Embedder, detector: Detector) -> str | None:
    """Return the command after which a gallery has all faces of cats, dogs and people in its photos.

    Args:
        store: of the gallery.
        model: the gallery's.
        detector: that finds its faces.

    Returns:
        `enroll --redetect`, or `migrate` if the model is not made for all of them; None: they are looked for already.
    """
    if models := models_to_find_more(model, detector):
        return f"familiar gallery migrate {store.folder} {model_arguments(models)}"
    if not_looked_for(detector) is None:
        return None
    return f"familiar gallery enroll {store.folder} --redetect --detector auto"


def models_to_find_more(model: Embedder, detector: Detector) -> tuple[str, ...]:
    """List the models with which a gallery can use all faces of cats, dogs and people.

    Args:
        model: the gallery's.
        detector: that finds its faces.

    Returns:
        Those that it has, and shipped ones for what they are not made for; empty: they are made for all, or the
        detector does not tell what it finds.
    """
    unknown = [] if model.made_for is None else [label for label in LABELS if label not in model.made_for]
    if not labels_of(detector) or not unknown:
        return ()
    return (*model.names, *dict.fromkeys(FAMILY[label] for label in unknown))


def unsuited_for(model: Embedder, detector: Detector) -> str:
    """Say what a model is not made for, and embeds all the same, as the detector finds it: such as "people".

    Args:
        model: the gallery's.
        detector: that finds its faces.

    Returns:
        "" for nothing: of several bundles, none embeds a species that it is not made for.
    """
    if model.species is not None or model.made_for is None:
        return ""
    names = {"cat": "cats", "dog": "dogs", "person": "people"}
    return " and ".join(names[label] for label in LABELS if label in labels_of(detector) - model.made_for)


def not_searched_for(store: Store, model: Embedder, detector: Detector) -> str:
    """Say what a gallery's photos are not searched for, and which command changes that.

    Args:
        store: of the gallery.
        model: the gallery's.
        detector: that finds its faces.

    Returns:
        To be put after what was not found, such as " (this album is not searched for people; ...)"; "" for nothing.
    """
    others = not_looked_for(detector)
    command = None if others is None else command_to_find_more(store, model, detector)
    return "" if command is None else f" (this album is not searched for {others}; to change that: {command})"


def _check_detector(store: Store, reference: ModelReference, chosen: str) -> None:
    if reference.detector in (None, chosen):
        return
    with store.read() as repository:
        if not repository.photos.have_files():
            return
    raise Contradiction(
        f"{store.folder}: its detector is {reference.detector}, not {chosen}; go on without naming a detector, or "
        f"look at all its photos again: familiar gallery enroll {store.folder} --redetect --detector {chosen}"
    )


def build_gallery_detector(
    model: Embedder, reference: ModelReference, chosen: str | None = None, model_path: Path | None = None
) -> Detector:
    """Build a detector, with the file that a gallery remembers for it.

    Args:
        model: the gallery's.
        reference: what the gallery remembers.
        chosen: the detector's name; None: the gallery's.
        model_path: the detector's file; None: the gallery's, or the downloaded one.

    Raises:
        BadDetector: as for `build_detector`.
    """
    name = chosen or reference.detector
    if model_path is None and name == reference.detector and reference.detector_model is not None:
        model_path = Path(reference.detector_model)
    return model.detector(name, model_path)


def remember_detector(
    store: Store, model: Embedder, chosen: Detector | str | None = None, model_path: Path | None = None
) -> None:
    """Remember the name of the detector that photos are searched with, unless it is an object.

    Args:
        store: to write to.
        model: the gallery's.
        chosen: as for `gallery_detector`.
        model_path: as for `gallery_detector`.
    """
    if chosen is not None and not isinstance(chosen, str):
        return
    reference = store.model_reference
    name = chosen or reference.detector or available_detector(model.detector_name, model_path)
    path = reference.detector_model if name == reference.detector else None
    remember(store, detector=name, detector_model=path if model_path is None else str(absolute_path(model_path)))
