"""What a gallery remembers of its model and its detector, so that later commands need neither."""

import json
from dataclasses import dataclass

from familiar.core.json_codec import DOCUMENTS


@dataclass(frozen=True)
class ModelReference:
    """Where the models of a gallery are, and which detector finds the faces in its photos.

    Attributes:
        models: as `Embedder.names` has them; empty: not known.
        species: that they embed; None: any.
        detector: its name, as for `build_detector`; None: not known.
        detector_model: the absolute path of the detector's file, if one was given.
    """

    models: tuple[str, ...] = ()
    species: tuple[str, ...] | None = None
    detector: str | None = None
    detector_model: str | None = None

    def to_json(self) -> str:
        """Serialize as the database stores it."""
        return json.dumps(DOCUMENTS.to_json(self), sort_keys=True)

    @staticmethod
    def from_json(text: str | None) -> "ModelReference":
        """Parse the result of `to_json`.

        Args:
            text: as the database stores it; None: nothing is known.
        """
        return NO_REFERENCE if text is None else DOCUMENTS.from_json(ModelReference, json.loads(text))


NO_REFERENCE = ModelReference()
