"""What can go wrong, by name. Each message says which file, what was wrong with it and what to do."""


class FamiliarError(Exception):
    """An expected failure: the command line prints its one line and exits with 1, without a traceback."""


class UnreadablePhoto(FamiliarError):
    """A file that is no photo, or one that cannot be decoded."""


class NoFaceFound(FamiliarError):
    """The detector found no face in a photo."""


class BadDetector(FamiliarError):
    """A detector of an unknown name, or one whose model file is missing or broken."""


class BadDataset(FamiliarError):
    """Labeled photos that cannot serve: empty, too few identities, a pairs file naming a missing photo."""


class BadBundle(FamiliarError):
    """A file that is no bundle of ours, or one whose bytes changed since it was written."""


class SpaceMismatch(FamiliarError):
    """Embeddings of one space were given to what belongs to another."""


class BadGallery(FamiliarError):
    """A folder that holds no gallery, one of a newer version, or a file of somebody else's in its place."""


class CorruptGallery(FamiliarError):
    """A gallery whose file is damaged, cut short, or older than what was once written to it."""


class GalleryBusy(FamiliarError):
    """Another process is writing to the gallery."""


class NotInGallery(FamiliarError):
    """A name, a number or a photo that a gallery does not know."""


class Contradiction(FamiliarError):
    """A correction that cannot hold together with what is certain, such as two faces in one photo being one."""


class UnsureSpecies(FamiliarError):
    """A photo of which no species is probable enough."""


class NoBundleForSpecies(FamiliarError):
    """A photo of a species that is known, and no bundle is for it."""


class BadRecipe(FamiliarError):
    """A recipe with an unknown key, or a value of the wrong type or out of range."""


class BadRun(FamiliarError):
    """A run folder that is missing, incomplete, made by another recipe, or in another process's hands."""


class BadResults(FamiliarError):
    """An `eval_results.json` that cannot be read, or cannot be compared with another."""


class BadWeights(FamiliarError):
    """A weights file that does not fit the network."""


class CannotWrite(FamiliarError):
    """A file that cannot be written: no room, no permission, a folder in its place."""


class TrainingFailed(FamiliarError):
    """Training stopped: the loss is not finite, all embeddings fell on one point, or a loading process died."""


class ParityFailed(FamiliarError):
    """An exported network does not compute what its source computes, so nothing was written."""


class GateRefused(FamiliarError):
    """An export that lost more of its source's accuracy than is allowed, so nothing was written."""


class TooLarge(FamiliarError):
    """A bundle that cannot be made as small as was asked for."""


class NothingToMeasure(FamiliarError):
    """A metric was asked for on data that has no such pairs or queries."""
