"""Client of the HTTP API of `familiar serve`.

```python
with Client("http://127.0.0.1:8000") as client:
    for progress in client.watch(client.enroll(["mia.jpg"])):
        print(progress.state, progress.processed, "of", progress.total)
    print(client.search_photo("who.jpg").known)
```
"""

from familiar.client.client import Client
from familiar.client.connection import ServerError

__all__ = ["Client", "ServerError"]
