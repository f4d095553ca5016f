"""A Hub on this machine that speaks as much of Hugging Face's protocol as publishing and fetching a model needs."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Repository:
    """The commits of a repository, each with all its files, and its branches and tags."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)

    def files(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = self.references.get(revision, revision)
        return (commit, self.commits[commit]) if commit in self.commits else None


@dataclass
class LoopbackHub:
    """What the Hub stores and was asked for.

    Attributes:
        url: of the Hub.
        repositories: by ORG/REPO.
        requests: the method and path of each.
    """

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)


@contextmanager
def loopback_hub() -> Iterator[LoopbackHub]:
    """Run a Hub until the context ends."""
    hub = LoopbackHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: LoopbackHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0].replace("%40", "@")
        self.hub.requests.append(f"{self.command} {path}")
        body = self._body()
        routes = (
            ("POST", r"/api/repos/create", self._create),
            ("POST", r"/api/validate-yaml", self._validate),
            ("POST", r"/api/models/(.+?/.+?)/preupload/(.+)", self._preupload),
            ("POST", r"/(.+?/.+?)\.git/info/lfs/objects/batch", self._batch),
            ("PUT", r"/objects/([0-9a-f]{64})", self._upload),
            ("POST", r"/api/models/(.+?/.+?)/commit/(.+)", self._commit),
            ("GET", r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", self._info),
            ("HEAD", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
            ("GET", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
        )
        for method, pattern, answer in routes:
            if method == self.command and (match := re.fullmatch(pattern, path)):
                answer(body, *match.groups())
                return
        self._send(404, {"error": f"not part of this Hub: {self.command} {path}"})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _create(self, body: bytes) -> None:
        request = json.loads(body)
        name = f"{request.get('organization') or 'me'}/{request['name']}"
        if name in self.hub.repositories:
            self._send(409, {"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"})
            return
        self.hub.repositories[name] = Repository(
            request.get("visibility") == "private", {"0" * 40: {}}, {"main": "0" * 40}
        )
        self._send(200, {"url": f"{self.hub.url}/{name}", "name": name, "id": name})

    def _validate(self, body: bytes) -> None:
        assert json.loads(body)["content"].startswith("---\n")
        self._send(200, {"errors": [], "warnings": []})

    def _preupload(self, body: bytes, *_: str) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "regular" if file["path"].endswith(".md") else "lfs",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self._send(200, {"files": files})

    def _batch(self, body: bytes, *_: str) -> None:
        objects = [
            {
                "oid": each["oid"],
                "size": each["size"],
                "actions": {"upload": {"href": f"{self.hub.url}/objects/{each['oid']}"}},
            }
            for each in json.loads(body)["objects"]
        ]
        self._send(200, {"transfer": "basic", "objects": objects})

    def _upload(self, body: bytes, digest: str) -> None:
        assert hashlib.sha256(body).hexdigest() == digest
        self.hub.objects[digest] = body
        self._send(200, b"")

    def _commit(self, body: bytes, name: str, revision: str) -> None:
        repository = self.hub.repositories[name]
        _, before = repository.files(revision) or ("", {})
        files = dict(before)
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        repository.commits[commit] = files
        repository.references[revision] = commit
        self._send(200, {"success": True, "commitOid": commit, "commitUrl": f"{self.hub.url}/{name}/commit/{commit}"})

    def _files(self, name: str, revision: str | None) -> tuple[str, dict[str, bytes]] | None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._send(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return None
        if (listed := repository.files(revision or "main")) is None:
            self._send(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        return listed

    def _info(self, _: bytes, name: str, revision: str | None) -> None:
        if files := self._files(name, revision):
            siblings = [{"rfilename": path} for path in files[1]]
            self._send(200, {"id": name, "modelId": name, "sha": files[0], "siblings": siblings, "tags": []})

    def _resolve(self, _: bytes, name: str, revision: str, path: str) -> None:
        if (files := self._files(name, revision)) is None:
            return
        commit, content = files[0], files[1].get(path)
        if content is None:
            self._send(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        self._send(200, content, {"X-Repo-Commit": commit, "ETag": etag, "Accept-Ranges": "bytes"})
