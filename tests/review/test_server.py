"""The server as a process: what it answers, what it refuses, what it keeps through a kill -9, and what it exports."""

from __future__ import annotations

import csv
import io
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image

pytest.importorskip("duckdb", reason="needs the review extra")
pytest.importorskip("starlette", reason="needs the review extra")
pytest.importorskip("uvicorn", reason="needs the review extra")

from typer.testing import CliRunner

from mohs._core.errors import DataError, RunError
from mohs.audit.decision_log import read_log
from mohs.audit.decisions import read_decisions
from mohs.cli import app
from mohs.review.source import open_source

Serve = Callable[..., Any]
FLAGGED = ("is.verdict", "mislabeled")


def test_views_facets_pairs_and_examples(serve: Serve, run: Path) -> None:
    server = serve(run)
    about = server.get("/api/about")
    assert (about["total"], about["kind"], about["classes"]) == (240, "images", ["cat", "dog", "owl"])
    rows = server.rows(FLAGGED)
    assert len(rows) == 24
    assert [row["chance"] for row in rows] == sorted((row["chance"] for row in rows), reverse=True)
    facets = server.get("/api/facets", [FLAGGED])
    verdicts = next(one for one in facets["facets"] if one["column"] == "verdict")
    assert sum(count for _, count in verdicts["values"]) == 240  # a facet counts without its own filter
    labels = next(one for one in facets["facets"] if one["column"] == "label")
    assert sum(count for _, count in labels["values"]) == 24
    assert facets["decided"]["no"] == 24
    assert sum(facets["range"]["bins"]) == 24
    pairs = server.get("/api/pairs")["pairs"]
    assert sum(one["count"] for one in pairs) == 24
    example = server.get("/api/example", [("row", "3")])
    assert [one["row"] for one in example["neighbors"]] == [4, 5, 6]
    assert [one["duplicate"] for one in example["neighbors"]] == [True, False, False]
    assert example["probabilities"][0] == [example["suggested"], pytest.approx(0.9)]
    found = server.get("/api/view", [FLAGGED, ("sort", "id")])
    page = server.get("/api/rows", [("view", found["view"]), ("from", "20"), ("count", "10")])["rows"]
    assert [row["row"] for row in page] == [row["row"] for row in found["rows"][20:]]


def test_map_and_pictures(serve: Serve, run: Path) -> None:
    import numpy as np

    server = serve(run)
    status, headers, data = server.request("GET", "/api/map")
    points = np.frombuffer(data, "<f4").reshape(2, 240)
    assert np.isfinite(points).all()
    _, _, data = server.request("GET", "/api/map/colors?by=verdict")
    length = int.from_bytes(data[:4], "little")
    words, colors = json.loads(data[4 : 4 + length]), np.frombuffer(data[4 + length :], np.uint8)
    assert (np.array(words["names"])[colors] == "mislabeled").sum() == 24
    for by in ("label", "suggested", "decision", "chance", "grade", "margin"):
        assert server.request("GET", f"/api/map/colors?by={by}")[0] == 200
    assert server.request("GET", "/api/map/colors?by=why")[0] == 400
    _, _, mask = server.request("GET", "/api/map/mask?is.verdict=mislabeled")
    assert sum(mask) == 24
    rows = np.array([3, 13, 4], "<u4")
    chosen = server.request("POST", "/api/select", rows.tobytes())
    name = json.loads(chosen[2])["set"]
    assert {row["row"] for row in server.rows(("set", name))} == {3, 4, 13}
    status, headers, data = server.request("GET", "/picture/3/320")
    assert (status, headers["content-type"]) == (200, "image/jpeg")
    assert Image.open(io.BytesIO(data)).size == (96, 72)
    assert server.request("GET", "/picture/3/321")[0] == 404  # only known sizes
    gone = server.get("/api/view", [("find", "picture_0119")])["rows"][0]["row"]
    assert server.request("GET", f"/picture/{gone}/160")[0] in (200, 404)  # the audit's thumbnail, if it is in the gallery


def test_decisions_are_logged_undone_and_applied(serve: Serve, run: Path, tmp_path: Path) -> None:
    server = serve(run)
    rows = [row["row"] for row in server.rows(FLAGGED)]
    server.post("/api/decide", {"rows": rows[:1], "decision": "accept"})
    server.post("/api/decide", {"rows": rows[1:2], "decision": "keep", "by": "bo"})
    server.post("/api/decide", {"rows": rows[2:3], "decision": "change", "label": "owl"})
    made = server.post("/api/decide", {"rows": rows[3:4], "decision": "exclude"})
    assert (made["seq"], made["undo"], made["redo"]) == (4, True, False)
    view = server.get("/api/view", [FLAGGED, ("decided", "no"), ("has", "suggestion"), ("in.p_mislabeled", "0.8..")])
    bulk = server.post("/api/decide", {"view": view["view"], "decision": "accept"})
    assert bulk["count"] == view["total"] > 5
    assert server.get("/api/facets", [FLAGGED])["decided"]["yes"] == 4 + view["total"]
    assert server.post("/api/step/undo", {})["count"] == view["total"]
    assert server.post("/api/step/redo", {})["count"] == view["total"]
    assert server.post("/api/step/undo", {})["count"] == view["total"]
    assert server.request("POST", "/api/step/redo", {"by": "bo"})[0] == 409
    assert len(server.get("/api/changes", [("since", "3")])["changed"]) == 1 + view["total"]
    server.close()
    again = serve(run)  # the state is the fold over the log
    found = again.get("/api/facets")["decided"]
    assert (found["yes"], found["accept"], found["keep"], found["change"], found["exclude"]) == (4, 1, 1, 1, 1)
    again.close()
    done = CliRunner().invoke(
        app, ["apply", str(run), str(run / "decisions.log"), "--to", str(tmp_path / "labels.csv"), "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["accept"], told["exclude"]) == (1, 1)


def test_wrong_requests_are_refused_in_words(serve: Serve, run: Path) -> None:
    server = serve(run)
    for body, words in (
        ({"rows": [999], "decision": "keep"}, "rows must be whole numbers"),
        ({"rows": [True], "decision": "keep"}, "rows must be"),
        ({"rows": [], "decision": "keep"}, "rows must be"),
        ({"rows": [1], "decision": "delete"}, "unknown decision"),
        ({"rows": [1], "decision": "change", "label": "cow"}, "not one of the 3 classes"),
        ({"rows": [1], "decision": "accept"}, "no suggestion to accept"),  # the suggestion is its label
        ({"rows": [1], "decision": "keep", "by": "\x00"}, "reviewer's name"),
        ({"rows": [1], "decision": "keep", "by": "x" * 99}, "reviewer's name"),
        ([], "JSON object"),
        (b"\xff", "not JSON"),
    ):
        status, _, data = server.request("POST", "/api/decide", body)
        assert status == 400
        assert words in json.loads(data)["error"]
    assert server.request("POST", "/api/decide", {"view": "zz", "decision": "keep"})[0] == 410
    assert server.request("GET", "/api/view?sort=rowid")[0] == 400
    assert server.request("GET", "/api/example?row=-1")[0] == 400
    assert server.request("GET", "/api/rows?view=1&from=x&count=2")[0] in (400, 410)
    assert server.request("POST", "/api/select", bytes(17 * 2**20))[0] == 413
    assert server.request("POST", "/api/select", b"abc")[0] == 400
    assert server.get("/api/progress")["decided"] == 0


@pytest.mark.parametrize(
    "path",
    [
        "/web/../server.py", "/web/%2e%2e/server.py", "/web/..%2fserver.py", "/web//etc/passwd",
        "/web/../../../../../../etc/passwd",
        "/picture/../../etc/passwd/160", "/picture/..%2f..%2fetc%2fpasswd/160", "/picture/0x3/160", "/picture/3/../160",
        "/api/export/..%2f..%2fetc%2fpasswd", "/%2e%2e/etc/passwd", "/web/C:%5cWindows", "/web/app.js%00.css",
    ],
)  # fmt: skip
def test_no_path_leads_out(path: str, shared: Any) -> None:
    status, _, data = shared.request("GET", path)
    assert status in (400, 404)
    assert b"root:" not in data
    assert b"import" not in data


def test_dns_rebinding_and_cross_site_requests_are_refused(shared: Any) -> None:
    assert shared.request("GET", "/api/about", Host="evil.example")[0] == 421
    assert shared.request("GET", "/", Host="evil.example")[0] == 421
    assert shared.request("POST", "/api/decide", {"rows": [1], "decision": "keep"}, Origin="http://evil.example")[0] == 403
    assert shared.request("POST", "/api/decide", {"rows": [1], "decision": "keep"}, Origin=None)[0] == 403
    assert shared.request("GET", "/api/about", Sec_Fetch_Site="cross-site")[0] == 403
    assert shared.get("/api/progress")["decided"] == 0


def test_reviewers_on_other_machines_may_use_the_name_of_this_one(serve: Serve, run: Path) -> None:
    server = serve(run, "--host", "0.0.0.0", process=True)
    assert server.request("GET", "/api/about", Host=f"{socket.gethostname()}:{server.port}")[0] == 200
    assert server.request("GET", "/api/about", Host="evil.example")[0] == 421


def test_the_token_is_needed_and_sets_a_strict_cookie(shared: Any) -> None:
    for path in ("/api/about", "/picture/1/160", "/api/export/csv"):
        assert shared.request("GET", path, Cookie=None)[0] == 401
    assert shared.request("POST", "/login", {"token": "wrong"}, Cookie=None)[0] == 401
    for status, headers, _ in (
        shared.request("POST", "/login", {"token": "a-token-for-tests"}, Cookie=None),
        shared.request("GET", "/?token=a-token-for-tests", Cookie=None),
    ):
        assert status == 200
        cookie = headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
    status, headers, _ = shared.request("GET", "/?token=wrong", Cookie=None)
    assert status == 200
    assert "set-cookie" not in headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_every_confirmed_decision_survives_kill_9(serve: Serve, run: Path) -> None:
    server = serve(run, process=True)
    confirmed: list[tuple[int, str]] = []
    stop = threading.Event()

    def review(by: str, rows: range) -> None:
        for row in rows:
            try:
                server.post("/api/decide", {"rows": [row], "decision": "exclude", "by": by})
            except (OSError, AssertionError):
                break
            confirmed.append((row, by))
        stop.set()

    reviewers = [threading.Thread(target=review, args=args) for args in (("ada", range(100)), ("bo", range(100, 200)))]
    for one in reviewers:
        one.start()
    while len(confirmed) < 80 and not stop.is_set():
        time.sleep(0.002)
    server.kill()
    for one in reviewers:
        one.join()
    assert 80 <= len(confirmed) < 200
    _, state = read_log(run / "decisions.log")
    kept = {(int(id_.removeprefix("ex-")), made.by) for id_, made in state.decided()}
    assert set(confirmed) <= kept
    assert len(kept) <= len(confirmed) + 2  # at most the two that were on their way
    again = serve(run)
    assert again.get("/api/progress")["decided"] == len(kept)


def test_exports_hold_every_example(serve: Serve, run: Path, tmp_path: Path) -> None:
    server = serve(run)
    rows = [row["row"] for row in server.rows(FLAGGED)]
    server.post("/api/decide", {"rows": rows[:1], "decision": "accept"})
    server.post("/api/decide", {"rows": rows[1:2], "decision": "exclude"})
    table = pyarrow.csv.read_csv(io.BytesIO(server.request("GET", "/api/export/csv")[2]))
    assert table.column_names == ["id", "path", "label", "previous", "decision", "by", "at"]
    assert len(table) == 240
    assert pyarrow.parquet.read_table(io.BytesIO(server.request("GET", "/api/export/parquet")[2])).num_rows == 240
    found = json.loads(server.request("GET", "/api/export/json")[2])
    assert len(found["images"]) == 240
    assert len(found["annotations"]) == 239
    names = {one["id"]: one["name"] for one in found["categories"]}
    changed = next(one for one in found["annotations"] if one.get("decision") == "accept")
    assert names[changed["category_id"]] != changed["previous"]
    (tmp_path / "decisions.csv").write_bytes(server.request("GET", "/api/export/decisions")[2])
    assert [row["decision"] for row in read_decisions(tmp_path / "decisions.csv")] == ["accept", "exclude"]
    assert server.request("GET", "/api/export/exe")[0] == 400


def test_hostile_names_are_only_text(serve: Serve, hostile_run: Path, tmp_path: Path) -> None:
    server = serve(hostile_run)
    rows = server.rows(FLAGGED)
    assert rows
    for row in rows:
        server.post("/api/decide", {"rows": [row["row"]], "decision": "accept"})
    status, headers, _ = server.request("GET", "/api/view")
    assert (status, headers["content-type"]) == (200, "application/json")
    (tmp_path / "decisions.csv").write_bytes(server.request("GET", "/api/export/decisions")[2])
    cells = list(csv.reader(io.StringIO((tmp_path / "decisions.csv").read_text(encoding="utf-8-sig"), newline="")))
    assert not any(cell[:1] in ("=", "+", "@") for line in cells for cell in line)
    assert {row["id"] for row in read_decisions(tmp_path / "decisions.csv")} == {row["id"] for row in rows}
    done = CliRunner().invoke(app, ["apply", str(hostile_run), str(hostile_run / "decisions.log"), "--dry-run", "--json"])
    assert json.loads(done.stdout)["accept"] == len(rows)


def test_a_foreign_table_with_images(serve: Serve, run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.png"
    Image.new("RGB", (96, 96), "red").save(outside)
    images = run / "pictures"
    (images / "link.png").symlink_to(outside)
    files = ["picture_0001.png", "../../secret.png", str(outside), "link.png", "missing.png", "picture_0002.png"]
    table = pa.table({"file_name": files, "kind": [True, False, True, True, False, None], "n": [1, 2, 3, 4, 5, 6]})
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
    server = serve(tmp_path / "table.parquet", label="kind", images=images)
    assert server.get("/api/about")["classes"] == ["False", "True"]
    assert [server.request("GET", f"/picture/{row}/160")[0] for row in range(6)] == [200, 404, 404, 404, 404, 200]
    server.post("/api/decide", {"rows": [1], "decision": "change", "label": "True"})
    labels = list(csv.DictReader(io.StringIO(server.request("GET", "/api/export/csv")[2].decode())))
    assert [(one["id"], one["label"]) for one in labels[:2]] == [("0", "True"), ("1", "True")]
    assert (tmp_path / "table.decisions.log").exists()


def test_reviewers_disagree_and_a_sample_gives_an_interval(serve: Serve, run: Path) -> None:
    server = serve(run)
    sample = server.rows(("sample", "10"))
    assert len(sample) == 10
    assert all(row["verdict"] == "mislabeled" for row in sample)
    for row in sample[:8]:
        server.post("/api/decide", {"rows": [row["row"]], "decision": "accept"})
    server.post("/api/decide", {"rows": [sample[9]["row"]], "decision": "keep"})  # beyond a gap: does not count
    found = server.get("/api/progress")["sample"]
    assert (found["decided"], found["right"], found["precision"], found["high"]) == (8, 8, 1.0, 1.0)
    assert 0.6 < found["low"] < 0.7
    same = {"rows": [sample[7]["row"]], "decision": "change", "label": sample[7]["label"]}  # the label is right, the flag wrong
    server.post("/api/decide", same)
    assert server.get("/api/progress")["sample"]["right"] == 7
    server.post("/api/decide", {"rows": [sample[0]["row"]], "decision": "keep", "by": "bo"})
    disputed = server.get("/api/disagreements")["rows"]
    assert [one["row"] for one in disputed] == [sample[0]["row"]]
    assert {one["by"]: one["decision"] for one in disputed[0]["opinions"]} == {"ada": "accept", "bo": "keep"}
    assert [row["row"] for row in server.rows(("decided", "disputed"))] == [sample[0]["row"]]


def test_one_server_per_log_and_a_clear_error_without_an_audit(serve: Serve, run: Path, tmp_path: Path) -> None:
    serve(run)
    told = CliRunner().invoke(app, ["review", str(run), "--no-open"])
    assert isinstance(told.exception, RunError)
    assert "another mohs review has it open" in str(told.exception)
    with pytest.raises(DataError, match="give the folder of a finished audit"):
        open_source(tmp_path / "nothing")
    with pytest.raises(DataError, match="is not the folder of an audit"):
        open_source(tmp_path)
    with pytest.raises(ValueError, match="at least 8 characters"):
        CliRunner().invoke(app, ["review", str(run), "--token", "short"], catch_exceptions=False)
    shutil.copytree(run, tmp_path / "copy")
    table = tmp_path / "copy" / "hardness.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    with pytest.raises(DataError, match="is damaged"):
        open_source(tmp_path / "copy")
