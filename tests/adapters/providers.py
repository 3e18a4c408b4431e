"""A local server that speaks as OpenAI, Cohere and Voyage do."""

import base64
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from samples import WordEmbedder


class Request(NamedTuple):
    path: str
    body: dict[str, Any]
    at: float

    @property
    def texts(self) -> list[str]:
        texts: list[str] = self.body["texts" if "texts" in self.body else "input"]
        return texts


class Refusal(NamedTuple):
    """An answer that is not the vectors; a status of 0 resets the connection."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: object = None


_REFUSED = {"error": {"message": "refused"}, "message": "refused", "detail": "refused"}
"""What each of the three looks for in a refusal."""


class Server(ThreadingHTTPServer):
    """Answers as OpenAI (/v1/embeddings), Cohere (/v2/embed) and Voyage (/voyage/embeddings) do.

    A text has the vector of a `WordEmbedder`; one that is searched with has 1 more in all of its values.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[Request] = []
        self.refusals: deque[Refusal] = deque()
        """What comes before the vectors, a request each."""
        self.most_texts = 2_048
        self.shuffled = False
        self.floats = False
        self.lost = 0
        """Vectors that are left out."""

    def answer(self, request: Request) -> Refusal:
        texts = request.texts
        if "" in texts or not texts or len(texts) > self.most_texts:
            return Refusal(400)
        width = request.body.get("dimensions") or request.body.get("output_dimension") or 16
        query = "query" in str(request.body.get("input_type"))
        rows = list(WordEmbedder().embed(texts)[:, :width] + np.float32(query))[: len(texts) - self.lost]
        if request.path == "/v2/embed":
            vectors = [row.tolist() for row in rows]
            return Refusal(200, body={"id": "1", "texts": texts, "embeddings": {"float": vectors}})
        data = [
            {"object": "embedding", "index": index, "embedding": self._written(row, request)}
            for index, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        ordered = data[::-1] if self.shuffled else data
        return Refusal(200, body={"object": "list", "data": ordered, "model": request.body["model"], "usage": usage})

    def _written(self, row: Any, request: Request) -> object:
        if self.floats or request.body.get("encoding_format") != "base64":
            return row.tolist()
        return base64.b64encode(row.astype("<f4").tobytes()).decode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # no connection stays open behind a test
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Request(self.path, body, time.monotonic())
        self.server.requests.append(request)
        answer = self.server.refusals.popleft() if self.server.refusals else self.server.answer(request)
        if answer.status == 0:
            # Closed without lingering: the client sees a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        content = json.dumps(_REFUSED if answer.body is None else answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def finish(self) -> None:
        with suppress(OSError, ValueError):  # the connection was reset
            super().finish()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def expected(texts: Sequence[str], *, query: bool = False) -> Any:
    """What the server answers."""
    return WordEmbedder().embed(texts) + np.float32(query)
