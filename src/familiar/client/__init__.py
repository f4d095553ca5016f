"""A gallery that `familiar serve` has opened, from another program: the HTTP API as Python.

with Client("http://127.0.0.1:8000") as client:
    for progress in client.watch(client.enroll([Path("mia.jpg")])):
        print(progress.state, progress.looked, "of", progress.found)
    print(client.search_photo(Path("who.jpg")).known)
"""

from familiar.client.client import Client
from familiar.client.connection import ServerError

__all__ = ["Client", "ServerError"]
