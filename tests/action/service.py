"""The part of GitHub's API that comments need, on a port of this machine."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

BOT = {"login": "github-actions[bot]", "type": "Bot"}
USER = {"login": "mallory", "type": "User"}


@dataclass
class Service:
    """The comments of one pull request, number 7."""

    token: str = "the-token"
    may_write: bool = True
    owner: str | None = None
    """Login of the user to whom the token belongs; None: the job's own."""
    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def add(self, body: str, user: dict[str, str]) -> dict[str, Any]:
        """A comment."""
        made = {"id": 1_000 + len(self.comments), "body": body, "user": user}
        self.comments.append(made)
        return made

    def answer(self, method: str, url: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and content."""
        self.requests.append(f"{method} {url}")
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        own = {"login": self.owner, "type": "User"} if self.owner else BOT
        if path == "/user":
            return (200, own) if self.owner else (403, {"message": "Resource not accessible"})
        if method != "GET" and not self.may_write:
            return 403, {"message": "Resource not accessible by integration"}
        if path == "/repos/owner/repository/issues/7/comments":
            if method == "POST":
                return 201, self.add(body["body"], own)
            size, page = int(query["per_page"][0]), int(query["page"][0])
            return 200, self.comments[(page - 1) * size : page * size]
        found = re.fullmatch(r"/repos/owner/repository/issues/comments/(\d+)", path)
        for each in self.comments:
            if found and method == "PATCH" and each["id"] == int(found[1]):
                each["body"] = body["body"]
                return 200, each
        return 404, {"message": "Not Found"}


@contextmanager
def served(service: Service) -> Iterator[Service]:
    """Until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            if self.headers.get("Authorization") != f"Bearer {service.token}":
                status, content = 401, {"message": "Bad credentials"}
            else:
                status, content = service.answer(self.command, self.path, body)
            raw = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
