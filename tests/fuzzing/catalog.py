"""All readers by name."""

from fuzzing import data_readers, gallery_readers, model_readers, photo_readers, run_readers, web_readers
from fuzzing.reader import Reader

READERS: dict[str, Reader] = {
    **photo_readers.READERS,
    **data_readers.READERS,
    **model_readers.READERS,
    **run_readers.READERS,
    **gallery_readers.READERS,
    **web_readers.READERS,
}
