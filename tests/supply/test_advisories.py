"""The check for vulnerabilities, by the real pip-audit against services of all kinds on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pip_audit", reason="pip-audit is not installed (the release extra)")

Service = Callable[[dict[str, Any]], str]
Serve = Callable[[Service], str]
Check = Callable[[str], tuple[list[str], str]]


def advisory(name: str, fixed: str) -> dict[str, Any]:
    """An advisory as OSV's schema has it."""
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": fixed}]}]
    return {"id": f"TEST-{name}", "affected": [{"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}]}


def knows(**fixed: str) -> Service:
    """A service that knows one vulnerability of each package given."""

    def answer(query: dict[str, Any]) -> str:
        name = query["package"]["name"]
        return json.dumps({"vulns": [advisory(name, fixed[name])]} if name in fixed else {})

    return answer


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts a service and returns its address."""
    servers = []

    def start(service: Service) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    body = service(query).encode()
                except LookupError:
                    return self.send_error(500)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return None

            def log_message(self, *args: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/v1/query"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def check(script: Callable[[str], ModuleType], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Check:
    """A function that checks a lock of two packages by the service at an address: what it found and what it printed."""
    lock = tmp_path / "requirements.lock"
    pins = (f"{name}==1.0 \\\n    --hash=sha256:{digit * 64}\n" for name, digit in (("alpha", "a"), ("beta", "b")))
    lock.write_text("".join(pins))
    return lambda url: (script("advisories").check(lock, url), capfd.readouterr().out)


def test_no_vulnerability(serve: Serve, check: Check) -> None:
    assert check(serve(knows(pyyaml="5.4"))) == ([], "known vulnerabilities of the 2 versions in requirements.lock: 0\n")


def test_vulnerability(serve: Serve, check: Check) -> None:
    found, out = check(serve(knows(pyyaml="5.4", beta="1.1")))
    assert found == ["beta 1.0: TEST-beta, fixed in 1.1"]
    assert out == "known vulnerabilities of the 2 versions in requirements.lock: 1\n"


def fails_midway(query: dict[str, Any]) -> str:
    return {"pyyaml": knows(pyyaml="5.4")(query)}[query["package"]["name"]]


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        (knows(beta="1.1"), "the service does not know the vulnerability of pyyaml==5.3.1"),
        (lambda query: "<html>log in first</html>", "unreachable: "),
        (fails_midway, "unreachable: "),
    ],
    ids=["does not know the known one", "answers with a page", "fails midway"],
)
def test_bad_service_is_not_a_clean_result(service: Service, reason: str, serve: Serve, check: Check) -> None:
    found, out = check(serve(service))
    assert found == []
    assert out.startswith(f"known vulnerabilities of requirements.lock: not checked: {reason}")


@pytest.mark.parametrize(("vulnerable", "code"), [(True, 1), (False, 0)])
def test_exit_code(vulnerable: bool, code: int, serve: Serve, script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    (lock := tmp_path / "lock.txt").write_text("alpha==1.0\n")
    url = serve(knows(pyyaml="5.4", alpha="1.1")) if vulnerable else "http://127.0.0.1:9/v1/query"
    done = subprocess.run(
        [sys.executable, script("advisories").__file__, "--lock", lock, "--url", url], capture_output=True, text=True
    )
    assert done.returncode == code
    assert ("vulnerable: alpha 1.0" in done.stderr) == vulnerable
    assert (f"not checked: unreachable: {url}" in done.stdout) != vulnerable
