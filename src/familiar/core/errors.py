"""Exceptions by cause. Each message names the file, the cause and the remedy."""

from collections.abc import Sequence


class FamiliarError(Exception):
    """An expected failure: the command line prints the message in one line and exits with 1, without a traceback."""


class UnreadablePhoto(FamiliarError):
    """A file that is not a photo, or cannot be decoded."""


class BadMetadata(FamiliarError):
    """An XMP sidecar, or the metadata in a photo, that cannot be read, or cannot be changed without losing data."""


class NoFaceFound(FamiliarError):
    """A photo without a face, or without the one that was asked for."""


class NothingDetected(NoFaceFound):
    """The detector found no face at all in a photo."""


class BadDetector(FamiliarError):
    """An unknown detector name, or a detector whose model file is missing or broken."""


class BadDataset(FamiliarError):
    """Unusable labeled photos: none, too few identities, or a pairs file that names a missing photo."""


class BadBundle(FamiliarError):
    """A file that is not a familiar bundle, or is corrupted."""


class BadNetwork(FamiliarError):
    """An ONNX network cannot be imported."""


class SpaceMismatch(FamiliarError):
    """Embeddings of one space used with something that belongs to another."""


class BadGallery(FamiliarError):
    """A folder without a gallery, a gallery of a newer version, or a file of another program at its path."""


class CorruptGallery(FamiliarError):
    """A gallery whose file is damaged, truncated, or older than the last write to it."""


class GalleryBusy(FamiliarError):
    """Another process is writing to the gallery."""


class IndexUnavailable(FamiliarError):
    """A search index outside the gallery that cannot be reached, or does not do what it was asked."""


class NotInGallery(FamiliarError):
    """A name, a number or a photo that is not in the gallery."""


class Contradiction(FamiliarError):
    """A correction that contradicts a certain fact, such as an earlier correction."""


class SharedPhoto(Contradiction):
    """A correction by which a photo would show one identity twice, without a word that it is meant so.

    Attributes:
        faces: pairs of faces of one photo that would show one identity.
        name: of that identity, if it has one.
    """

    def __init__(self, message: str, faces: Sequence[tuple[int, int]], name: str | None) -> None:
        super().__init__(message)
        self.faces = tuple(faces)
        self.name = name


class UnknownSpecies(FamiliarError):
    """A face of which nothing says the species, where each species has a bundle of its own."""


class NoBundleForSpecies(FamiliarError):
    """A face of a species that has no bundle."""


class BadRecipe(FamiliarError):
    """A recipe with an unknown key, or a value of the wrong type or out of range."""


class BadRun(FamiliarError):
    """A run folder that is missing, incomplete, made by another recipe, or locked by another process."""


class BadResults(FamiliarError):
    """An `eval_results.json` that cannot be read, or cannot be compared with another."""


class BadWeights(FamiliarError):
    """A weights file that does not fit the network."""


class CannotDownload(FamiliarError):
    """A file cannot be fetched, or is not what its publisher published."""


class CannotWrite(FamiliarError):
    """A file that cannot be written: no space, no permission, or a folder at its path."""


class TrainingFailed(FamiliarError):
    """Training stopped: the loss is not finite, all embeddings collapsed to one point, or a loading process died."""


class FailedOnMain(FamiliarError):
    """An error of rank 0 in a training of several processes, raised on the others; rank 0 reports it."""


class ParityFailed(FamiliarError):
    """An exported network whose output differs from its source's; nothing was written."""


class GateRefused(FamiliarError):
    """An export that lost more accuracy than allowed; nothing was written."""


class TooLarge(FamiliarError):
    """A bundle that cannot be made as small as requested."""


class NothingToMeasure(FamiliarError):
    """A metric that is undefined for data without such pairs or queries."""
