"""The server of the review: a Starlette app over one `Review`; the page is plain modules in `web/`.

Requests name examples by their row number and pictures by row and size; no request names a file. Everything is answered in
threads, so that a slow query does not keep others waiting.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mohs._core.errors import RunError
from mohs._core.plain_text import finite
from mohs.review import counts, map_points
from mohs.review.access import HEADERS, Access
from mohs.review.example import ExampleView
from mohs.review.export import FORMATS, export
from mohs.review.pictures import SIZES
from mohs.review.progress import progress
from mohs.review.query import QueryError, Spec, parse_spec
from mohs.review.reaudit import ReAudit
from mohs.review.review import MOST_PAGE, Review, check_name

WEB = Path(__file__).parent / "web"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PAGE = 120  # number of examples that are sent with a view
BODY = 16 * 2**20  # bytes of a request: a selection of four million rows
DAY = 86_400


class Api:
    """The endpoints of the page; each method answers one path."""

    def __init__(self, review: Review, access: Access, by: str) -> None:
        self.review, self.access, self.by = review, access, by
        self.examples, self.again = ExampleView(review), ReAudit(review)
        self.facet_columns = counts.facet_columns(review.database)

    def about(self, request: Request) -> Any:
        return self.review.about() | {"by": self.by, "map": map_points.axes(self.review.source) is not None}

    def view(self, request: Request) -> Any:
        seq = self.review.log.state.last  # before the query, so that no later decision is missed
        name, view = self.review.database.view(self._spec(request))
        return {"view": name, "total": view.total, "rows": self.review.cards(view.rows(0, PAGE)), "seq": seq}

    def rows(self, request: Request) -> Any:
        view = self.review.database.known_view(request.query_params.get("view", ""))
        if view is None:
            return JSONResponse({"error": "this view is no longer kept: ask for it again"}, 410)
        start, count = _number(request, "from"), min(_number(request, "count"), MOST_PAGE)
        return {"rows": self.review.cards(view.rows(start, count))}

    def facets(self, request: Request) -> Any:
        spec, database = self._spec(request), self.review.database
        column = request.query_params.get("range") or self.review.source.roles.get("chance")
        return {
            "facets": [counts.facet(database, name, title, spec) for name, title in self.facet_columns],
            "decided": counts.decided_counts(database, spec),
            "range": None if column is None else counts.histogram(database, spec, column),
        }

    def example(self, request: Request) -> Any:
        return self.examples.of(self._row(request.query_params.get("row", "")))

    def pairs(self, request: Request) -> Any:
        return {"pairs": counts.pairs(self.review.database, self._spec(request))}

    def progress(self, request: Request) -> Any:
        return progress(self.review, check_name(request.query_params.get("by", self.by)))

    def disagreements(self, request: Request) -> Any:
        return {"rows": self.review.disagreements()}

    def changes(self, request: Request) -> Any:
        return self.review.changes(_number(request, "since"))

    def map(self, request: Request) -> Response:
        """x, then y, of every example: float32, little-endian."""
        x, y = map_points.places(self.review.database)
        return Response(x.tobytes() + y.tobytes(), media_type="application/octet-stream")

    def colors(self, request: Request) -> Response:
        """Length of a JSON object with palette and names (4 bytes), the object, then a byte per example."""
        made = map_points.colors(self.review, request.query_params.get("by", ""))
        words = json.dumps({"palette": made.palette, "names": made.names}).encode()
        return Response(len(words).to_bytes(4, "little") + words + made.colors.tobytes(), media_type="application/octet-stream")

    def mask(self, request: Request) -> Response:
        """A byte per example: whether the filters let it through."""
        _, view = self.review.database.view(self._spec(request))
        shown = np.zeros(self.review.database.total, np.uint8)
        shown[view.rows()] = 1
        return Response(shown.tobytes(), media_type="application/octet-stream")

    def picture(self, request: Request) -> Response:
        size = request.path_params["size"]
        found = self.review.pictures.of(self._row(request.path_params["row"]), size) if size in SIZES else None
        if found is None:
            return PlainTextResponse("no picture", 404)
        return Response(found[0], media_type=found[1], headers={"cache-control": f"private, max-age={DAY}, immutable"})

    def export(self, request: Request) -> Response:
        kind = request.path_params["kind"]
        if kind not in FORMATS:
            raise QueryError(f"unknown export {kind[:40]!r}; known: {', '.join(FORMATS)}")
        media, name = FORMATS[kind]
        return StreamingResponse(
            export(self.review, kind), media_type=media, headers={"content-disposition": f'attachment; filename="{name}"'}
        )

    def select(self, request: Request, body: bytes) -> Any:
        if len(body) % 4:
            raise QueryError("a selection is rows as 32-bit numbers")
        rows = np.frombuffer(body, "<u4")
        return {"set": self.review.database.select(rows), "count": len(np.unique(rows))}

    def decide(self, request: Request, body: bytes) -> Any:
        asked = _object(body)
        decision, by, label = str(asked.get("decision")), check_name(asked.get("by", self.by)), str(asked.get("label") or "")
        if "view" in asked:
            view = self.review.database.known_view(str(asked["view"]))
            if view is None:
                return JSONResponse({"error": "this view is no longer kept: ask for it again"}, 410)
            return self.review.decide_view(view, decision, by, label)
        return self.review.decide(self.review.check_rows(asked.get("rows")), decision, by, label)

    def step(self, request: Request, body: bytes) -> Any:
        do = request.path_params["do"]
        made = self.review.step(check_name(_object(body).get("by", self.by)), do)
        return JSONResponse({"error": f"there is nothing to {do}"}, 409) if made is None else made

    def reaudit(self, request: Request, body: bytes = b"") -> Any:
        if request.method == "GET":
            return self.again.state()
        return self.again.stop() if _object(body).get("stop") else self.again.start()

    def login(self, request: Request, body: bytes) -> Response:
        if not self.access.admits(str(_object(body).get("token") or "")):
            return JSONResponse({"error": "this is not the token"}, 401)
        return self._let_in(JSONResponse({"admitted": True}))

    def page(self, request: Request) -> Response:
        """The page; an address with the right token sets the cookie."""
        response = Response(FILES["index.html"][0], media_type="text/html", headers={"cache-control": "no-cache"})
        return self._let_in(response) if self.access.admits(request.query_params.get("token", "")) else response

    def file(self, request: Request) -> Response:
        """A file of the page, by name: those that are installed, and no others."""
        found = FILES.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("not found", 404)
        return Response(found[0], media_type=found[1], headers={"cache-control": "no-cache"})

    def _let_in(self, response: Response) -> Response:
        response.set_cookie(self.access.cookie, self.access.token, httponly=True, samesite="strict", path="/")
        return response

    def _spec(self, request: Request) -> Spec:
        return self.review.database.prepared(parse_spec(request.query_params.multi_items(), self.review.source.columns))

    def _row(self, text: str | int) -> int:
        if not str(text).isascii() or not str(text).isdecimal() or not int(text) < self.review.database.total:
            raise QueryError(f"row must be a whole number from 0 to {self.review.database.total - 1}")
        return int(text)


def create_app(review: Review, access: Access, by: str) -> ASGIApp:
    """The app with its guard: requests that break a rule never reach it."""
    api = Api(review, access, by)
    get = {
        "/": api.page,
        "/web/{name:path}": api.file,
        "/picture/{row}/{size:int}": api.picture,
        "/api/about": api.about,
        "/api/view": api.view,
        "/api/rows": api.rows,
        "/api/facets": api.facets,
        "/api/example": api.example,
        "/api/pairs": api.pairs,
        "/api/progress": api.progress,
        "/api/disagreements": api.disagreements,
        "/api/changes": api.changes,
        "/api/map": api.map,
        "/api/map/colors": api.colors,
        "/api/map/mask": api.mask,
        "/api/export/{kind}": api.export,
        "/api/reaudit": api.reaudit,
    }
    post = {
        "/login": api.login,
        "/api/decide": api.decide,
        "/api/step/{do:str}": api.step,
        "/api/select": api.select,
        "/api/reaudit": api.reaudit,
    }
    routes = [Route(path, partial(answer, method), methods=["GET"]) for path, method in get.items()]
    routes += [Route(path, partial(answer_change, method), methods=["POST"]) for path, method in post.items()]
    return guarded(Starlette(routes=routes), access)


async def answer(method: Callable[[Request], Any], request: Request) -> Response:
    """The response of a method, run in a thread; errors in the request are reported."""
    return await _answered(partial(method, request))


async def answer_change(method: Callable[[Request, bytes], Any], request: Request) -> Response:
    """As `answer`, for a method that takes the request's body."""
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > BODY:
            return JSONResponse({"error": f"a request has at most {BODY:,} bytes"}, 413)
    return await _answered(partial(method, request, b"".join(pieces)))


async def _answered(call: Callable[[], Any]) -> Response:
    try:
        made = await run_in_threadpool(call)
    except (QueryError, ValueError) as error:
        return JSONResponse({"error": str(error)}, 400)
    except duckdb.Error as error:
        return JSONResponse({"error": f"the query failed: {str(error).splitlines()[0]}"}, 500)
    except (RunError, OSError) as error:
        return JSONResponse({"error": str(error)}, 500)
    if isinstance(made, Response):
        return made
    return Response(json.dumps(finite(made), allow_nan=False, separators=(",", ":")), media_type="application/json")


def guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """The app behind the rules of `access`, with security headers on every response."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = access.refusal(scope["method"], scope["path"], headers, _cookies(headers.get("cookie", "")))

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        response = app if refused is None else JSONResponse({"error": refused[1]}, refused[0])
        await response(scope, receive, send_guarded)

    return guard


def listen(host: str, port: int) -> tuple[socket.socket, int]:
    """An open socket, and its port; port 0 takes a free one.

    The protocol is given explicitly because asyncio disables Nagle's algorithm only then: without it a response takes 40 ms
    longer.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ValueError(f"cannot listen on {host}:{port} ({error.strerror or error}): choose another port or host") from error
    sock.listen(128)
    return sock, sock.getsockname()[1]


def serve(review: Review, access: Access, by: str, sock: socket.socket) -> None:
    """Serve on an open socket until interrupted."""
    config = uvicorn.Config(
        create_app(review, access, by),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
        lifespan="off",
        ws="none",
    )
    asyncio.run(uvicorn.Server(config).serve(sockets=[sock]))


def _cookies(text: str) -> dict[str, str]:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(text)
    except CookieError:
        return {}
    return {name: one.value for name, one in jar.items()}


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        raise QueryError(f"{name} must be a whole number")
    return int(text)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except ValueError as error:
        raise QueryError("the request is not JSON") from error
    if not isinstance(found, dict):
        raise QueryError("the request must be a JSON object")
    return found


def _files() -> dict[str, tuple[bytes, str]]:
    """The page's files by name, read once."""
    found = sorted(file for file in WEB.rglob("*") if file.is_file() and file.suffix in TYPES)
    return {file.relative_to(WEB).as_posix(): (file.read_bytes(), TYPES[file.suffix]) for file in found}


FILES = _files()
