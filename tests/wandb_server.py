"""A stand-in for the W&B server: the part of its API by which `wandb sync` sends a run, its curves and its artifacts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers import serving

KEY = "a" * 40


@dataclass
class Tracker:
    """What was sent.

    Attributes:
        address: Its address.
        runs: Display name of each run, by id.
        history: Rows of statistics, of all runs.
        artifacts: Files of each version of an artifact that was completed, by the name of the artifact.
        files: Files of runs, such as media, by name.
    """

    address: str = ""
    runs: dict[str, str] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    _begun: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the client finds it."""
        return {"WANDB_BASE_URL": self.address, "WANDB_API_KEY": KEY, "WANDB_ERROR_REPORTING": "false"}

    def graphql(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """Answers an operation."""
        return {name: answer for name, answer in [getattr(self, f"_{operation}", lambda _: ("", {}))(given)] if name}

    def stream(self, sent: dict[str, Any]) -> None:
        """Takes lines of a run's files."""
        for line in sent.get("files", {}).get("wandb-history.jsonl", {}).get("content", ()):
            self.history.append(json.loads(line))

    def _url(self, name: str) -> str:
        return f"{self.address}/store/{name}"

    def _RunResumeStatus(self, given: dict[str, Any]) -> tuple[str, Any]:
        del given
        return "model", None

    def _ServerFeaturesQuery(self, given: dict[str, Any]) -> tuple[str, Any]:
        del given
        return "serverInfo", {"features": []}

    def _UpsertBucket(self, given: dict[str, Any]) -> tuple[str, Any]:
        if given["displayName"]:
            self.runs[given["name"]] = given["displayName"]
        project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": "mia"}}
        bucket = {"id": "b", "name": given["name"], "displayName": given["displayName"], "project": project}
        return "upsertBucket", {"bucket": {**bucket, "config": "{}", "historyLineCount": 0}, "inserted": True}

    def _CreateArtifact(self, given: dict[str, Any]) -> tuple[str, Any]:
        number = f"artifact{len(self._begun)}"
        self._begun[number] = given["input"]["artifactCollectionName"], {}
        artifact = {"id": number, "state": "PENDING", "artifactSequence": {"latestArtifact": None}}
        return "createArtifact", {"artifact": artifact}

    def _CreateArtifactManifest(self, given: dict[str, Any]) -> tuple[str, Any]:
        file = {"id": "f", "uploadUrl": self._url(f"{given['artifactID']}-manifest"), "uploadHeaders": []}
        return "createArtifactManifest", {"artifactManifest": {"id": given["artifactID"], "file": file}}

    def _UpdateArtifactManifest(self, given: dict[str, Any]) -> tuple[str, Any]:
        file = {"id": "f", "uploadUrl": self._url(f"{given['artifactManifestID']}-manifest"), "uploadHeaders": []}
        return "updateArtifactManifest", {"artifactManifest": {"id": given["artifactManifestID"], "file": file}}

    def _CreateArtifactFiles(self, given: dict[str, Any]) -> tuple[str, Any]:
        edges = []
        for each in given["input"]["artifactFiles"]:
            place = f"{each['artifactID']}-{each['name']}"
            self._begun[each["artifactID"]][1][each["name"]] = place
            node: dict[str, Any] = {
                "storagePath": place,
                "uploadUrl": self._url(place),
                "uploadHeaders": [],
                "uploadMultipartUrls": None,
            }
            edges.append({"node": {**node, "artifact": {"id": each["artifactID"]}}})
        return "createArtifactFiles", {"files": {"edges": edges}}

    def _CommitArtifact(self, given: dict[str, Any]) -> tuple[str, Any]:
        name, places = self._begun[given["artifactID"]]
        self.artifacts.setdefault(name, []).append({file: self.files[place] for file, place in places.items()})
        return "commitArtifact", {"artifact": {"id": given["artifactID"], "digest": "d"}}

    def _CreateRunFiles(self, given: dict[str, Any]) -> tuple[str, Any]:
        files = [{"name": name, "uploadUrl": self._url(name)} for name in given["files"]]
        return "createRunFiles", {"runID": "b", "uploadHeaders": [], "files": files}


@contextmanager
def tracker_running() -> Iterator[Tracker]:
    """Runs a server for the time of a block."""
    tracker = Tracker()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self._body()
            answer: dict[str, Any] = {}
            if self.path == "/graphql":
                asked = json.loads(body)
                answer = {"data": tracker.graphql(asked["operationName"], asked.get("variables") or {})}
            elif self.path.endswith("/file_stream"):
                tracker.stream(json.loads(body))
            self._answer(json.dumps(answer).encode())

        def do_PUT(self) -> None:
            tracker.files[self.path.removeprefix("/store/")] = self._body()
            self._answer(b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base
            pass

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            return gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body

        def _answer(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        tracker.address = f"http://{address}"
        yield tracker
