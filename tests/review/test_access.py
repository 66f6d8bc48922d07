"""Who is let in: the Host against DNS rebinding, the Origin against other sites, the token against everybody else."""

from __future__ import annotations

import pytest

from mohs.review.access import Access

ACCESS = Access("secret-token", hosts=("localhost", "Review.example.org"), port=8000)
COOKIE = {"mohs-review-8000": "secret-token"}


def refused(method: str = "GET", path: str = "/api/about", cookies: dict[str, str] = COOKIE, **headers: str) -> int:
    given = {"host": "127.0.0.1:8000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    found = ACCESS.refusal(method, path, given, cookies)
    return 0 if found is None else found[0]


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "192.168.1.7:8000", "review.example.org"])
def test_known_hosts(host: str) -> None:
    assert refused(host=host) == 0


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.nip.io:8000", "", "[::1", "a@evil"]
)
def test_other_hosts_are_refused_even_with_the_token(host: str) -> None:
    assert refused(host=host) == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "http://127.0.0.1:9000", "http://127.0.0.1:8000.evil.example"]
)
def test_changes_from_elsewhere_are_refused(origin: str) -> None:
    assert refused("POST", "/api/decide", origin=origin) == 403
    assert refused("POST", "/login", origin=origin) == 403


def test_changes_from_the_page_are_admitted() -> None:
    assert refused("POST", "/api/decide", origin="http://127.0.0.1:8000") == 0
    assert refused("POST", "/api/decide", host="review.example.org", origin="https://review.example.org") == 0


def test_cross_site_reads_are_refused() -> None:
    assert refused(path="/picture/1/160", sec_fetch_site="cross-site") == 403
    assert refused(path="/api/about", sec_fetch_site="same-site") == 403
    assert refused(path="/", sec_fetch_site="cross-site") == 0  # a link to the page, which holds no data


@pytest.mark.parametrize(
    "cookies", [{}, {"mohs-review-8000": "wrong"}, {"mohs-review-8001": "secret-token"}, {"mohs-review-8000": "sécret"}]
)
def test_data_need_the_token_and_the_page_does_not(cookies: dict[str, str]) -> None:
    assert refused(path="/api/about", cookies=cookies) == 401
    assert refused(path="/picture/0/160", cookies=cookies) == 401
    assert refused("POST", "/api/decide", cookies=cookies, origin="http://127.0.0.1:8000") == 401
    assert refused(path="/", cookies=cookies) == 0
    assert refused(path="/web/app.js", cookies=cookies) == 0
