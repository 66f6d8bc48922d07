"""Who may talk to the server: the right Host, the right Origin, and a token.

    Host      must be one that the server was started for, or an IP address: a page of another name that resolves to this machine
              (DNS rebinding) is refused
    Origin    must be the server itself for everything that changes state; a request that another site causes is refused
    token     as a cookie (HttpOnly, SameSite=Strict) that the address `/?token=...` sets, compared in constant time

The page itself and its scripts hold no data and need no token: a link to a view works for everybody who has the cookie.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

SAFE = ("GET", "HEAD")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
LOCAL = ("localhost",)


@dataclass(frozen=True)
class Access:
    """The rules of one server."""

    token: str
    hosts: tuple[str, ...] = LOCAL
    port: int = 0

    @property
    def cookie(self) -> str:
        """Name of the cookie; several servers on one machine keep theirs apart."""
        return f"mohs-review-{self.port}"

    def refusal(self, method: str, path: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> tuple[int, str] | None:
        """Why a request is refused, with the status; None if it is admitted."""
        host = headers.get("host", "")
        if not self.known_host(host):
            return 421, "this address is not served here: use the one that mohs review printed, or start it with --allow HOST"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and path != "/":
            return 403, "a request from another site is refused"
        if method not in SAFE and urlsplit(headers.get("origin", "")).netloc != host:
            return 403, "a change must come from the page itself"
        if needs_token(path) and not self.admits(cookies.get(self.cookie, "")):
            return 401, "open the address with the token that mohs review printed"
        return None

    def known_host(self, host: str) -> bool:
        """Whether a Host header names this server: a name that it was started for, or an IP address."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in map(str.lower, self.hosts):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def admits(self, token: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())


def needs_token(path: str) -> bool:
    """Whether a path leads to data."""
    return path.startswith(("/api/", "/picture/"))
