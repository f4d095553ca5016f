"""What a gallery remembers of its model and its detector, so that later commands need neither."""

import json
from dataclasses import dataclass

from familiar.core.json_codec import DOCUMENTS


@dataclass(frozen=True)
class ModelReference:
    """Where the model of a gallery is, and which detector finds the faces in its photos.

    Attributes:
        model: the name of a shipped bundle, or the absolute path of a bundle or router; None: not known.
        species: that the model has bundles for; None: any.
        detector: its name, as for `build_detector`; None: not known.
        detector_model: the absolute path of the detector's file, if one was given.
    """

    model: str | None = None
    species: tuple[str, ...] | None = None
    detector: str | None = None
    detector_model: str | None = None

    def to_json(self) -> str:
        """Serialize as the database stores it."""
        return json.dumps(DOCUMENTS.to_json(self), sort_keys=True)

    @staticmethod
    def from_json(text: str | None) -> "ModelReference":
        """Parse the result of `to_json`; None: nothing is known."""
        return NO_REFERENCE if text is None else DOCUMENTS.from_json(ModelReference, json.loads(text))


NO_REFERENCE = ModelReference()
