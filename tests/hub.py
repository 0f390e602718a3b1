"""A stand-in for the Hugging Face hub: the part of its HTTP API by which its client makes, fills and reads repositories."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from tests.servers import serving

TOKEN = "hf_" + "t" * 30
LARGE = (".onnx", ".pt")
"""Files that the hub takes by Git LFS."""


@dataclass
class Hub:
    """The repositories of a hub.

    Attributes:
        endpoint: Its address.
        files: The files of each repository.
        said_bytes: What it says of the size of a file, if not its size.
        private: Repositories that were made private.
    """

    endpoint: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    said_bytes: dict[str, int] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    large: dict[str, bytes] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the client finds it; without the transfer that needs a server of its own."""
        return {"HF_ENDPOINT": self.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Returns status, headers and content."""
        if (found := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path)) and found[1] in self.files:
            siblings = [
                {"rfilename": name, "size": self.said_bytes.get(name, len(data)), "blobId": "0" * 40}
                for name, data in self.files[found[1]].items()
            ]
            return 200, {}, json.dumps({"id": found[1], "sha": "a" * 40, "siblings": siblings}).encode()
        if found := re.fullmatch(rf"/([^/]+/[^/]+)/resolve/{'a' * 40}/(.+)", path):
            data = self.files.get(found[1], {}).get(found[2])
            if data is not None and found[2].endswith(LARGE):
                oid = hashlib.sha256(data).hexdigest()
                self.large[oid] = data
                return 302, {"Location": f"{self.endpoint}/large/{oid}"}, b""
            if data is not None:
                return 200, {}, data
        if path.startswith("/large/") and (data := self.large.get(path.removeprefix("/large/"))) is not None:
            return 200, {}, data
        return 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"

    def put(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Takes a large file."""
        assert hashlib.sha256(body).hexdigest() == path.removeprefix("/large/")
        self.large[path.removeprefix("/large/")] = body
        return 200, {}, b""

    def post(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Makes a repository, or takes a step of a commit."""
        return 200, {}, json.dumps(self._post(path, body)).encode()

    def _post(self, path: str, body: bytes) -> dict[str, Any]:
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            for line in body.splitlines():
                entry = json.loads(line)
                value = entry["value"]
                if entry["key"] == "file":
                    self.files[found[1]][value["path"]] = base64.b64decode(value["content"])
                elif entry["key"] == "lfsFile":
                    self.files[found[1]][value["path"]] = self.large[value["oid"]]
            return {"commitUrl": f"{self.endpoint}/{found[1]}/commit/{'a' * 40}", "commitOid": "a" * 40}
        asked = json.loads(body)
        if path == "/api/repos/create":
            repository = f"{asked['organization']}/{asked['name']}"
            self.files.setdefault(repository, {".gitattributes": b"*.onnx filter=lfs\n"})
            if asked.get("private") or asked.get("visibility") == "private":
                self.private.add(repository)
            return {"url": f"{self.endpoint}/{repository}", "name": repository}
        if path == "/api/validate-yaml":
            assert isinstance(yaml.safe_load(asked["content"].split("---")[1]), dict)
            return {"errors": [], "warnings": []}
        if path.endswith("/preupload/main"):
            modes = {each["path"]: "lfs" if each["path"].endswith(LARGE) else "regular" for each in asked["files"]}
            return {
                "files": [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes.items()]
            }
        assert path.endswith(".git/info/lfs/objects/batch"), path
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.endpoint}/large/{each['oid']}"}}}
            for each in asked["objects"]
        ]
        return {"transfer": "basic", "objects": objects}


@contextmanager
def hub_running() -> Iterator[Hub]:
    """Runs a hub for the time of a block."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(*hub.get(unquote(urlsplit(self.path).path)))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                self._answer(401, {"X-Error-Message": "Invalid username or password."}, b"{}")
            else:
                self._answer(*hub.post(unquote(urlsplit(self.path).path), body))

        def do_PUT(self) -> None:
            self._answer(*hub.put(self.path, self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base
            pass

        def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        hub.endpoint = f"http://{address}"
        yield hub
