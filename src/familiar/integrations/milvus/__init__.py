"""Search of a gallery with an index in Milvus: `Gallery.open(folder, open_index=open_index)`."""

from familiar.integrations.milvus.index import MilvusIndex, open_index

__all__ = ["MilvusIndex", "open_index"]
