"""A small stand-in for the hub: the endpoints that huggingface_hub asks for a repository's list and its files."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40
LISTING = re.compile(r"/api/(models|datasets)/(.+?)(?:/revision/(.+))?")
FILE = re.compile(r"/(datasets/)?(.+?)/resolve/([^/]+)/(.+)")


class Hub:
    """Repositories in memory; every request is counted, and a file's body can be held back half way."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], dict[str, bytes]] = {}
        self.requests: list[str] = []
        self.half_sent = threading.Event()  # the first half of a held file is out
        self.release = threading.Event()  # the second half may go
        self.held: set[str] = set()
        self.url = ""

    def put(self, repo: str, files: dict[str, bytes], kind: str = "model") -> None:
        self.repositories[kind, repo] = files

    def hold(self, file: str) -> None:
        self.held.add(file)
        self.half_sent.clear()
        self.release.clear()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, body: bool) -> None:
        path = self.path.split("?")[0]
        self.hub.requests.append(f"{self.command} {path}")
        if listing := LISTING.fullmatch(path):
            kind, repo, _ = listing.groups()
            files = self.hub.repositories.get((kind.removesuffix("s"), repo))
            if files is None:
                return self._missing("RepoNotFound")
            siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
            return self._send(json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode(), body, "list")
        if asked := FILE.fullmatch(path):
            dataset, repo, _, name = asked.groups()
            files = self.hub.repositories.get(("dataset" if dataset else "model", repo))
            if files is None:
                return self._missing("RepoNotFound")
            return self._send(files[name], body, name) if name in files else self._missing("EntryNotFound")
        return self._missing("EntryNotFound")

    def _missing(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, data: bytes, body: bool, name: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if not body:
            return
        if name in self.hub.held:
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self.hub.half_sent.set()
            self.hub.release.wait(20)
            data = data[len(data) // 2 :]
        self.wfile.write(data)


@contextmanager
def serve() -> Iterator[Hub]:
    """A hub on a free local port, for as long as the block lasts."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.release.set()
        server.shutdown()
        server.server_close()
