"""Claimed folders: one job, one process at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from mohs._core.errors import DataError, RunError
from mohs._core.folders import claimed, refuse_data_folder


def test_the_same_job_may_resume_and_another_is_refused(tmp_path: Path) -> None:
    for _ in range(2):
        with claimed(str(tmp_path / "a" / "b"), "run.json", {"hash": "1", "note": "x"}, kind="run") as folder:
            assert folder == tmp_path / "a" / "b"
    assert json.loads((folder / "run.json").read_text()) == {"hash": "1", "note": "x"}
    with (
        pytest.raises(RunError, match=r"b holds another run \(1, this one is 2; .*\): choose another folder"),
        claimed(folder, "run.json", {"hash": "2"}, kind="run"),
    ):
        pass
    with claimed(folder, "audit.json", {"audit": "2"}, kind="audit", key="audit"):
        pass


def test_the_folder_of_the_data_is_no_output_folder(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(ValueError, match=r"out \(--out\) is the folder of the data, .*photos: give another folder"):
        refuse_data_folder(tmp_path / "photos" / ".." / "photos", str(tmp_path / "photos"))
    for out, data in ((None, tmp_path), (tmp_path / "runs", tmp_path), (tmp_path, "digits"), (tmp_path, [1])):
        refuse_data_folder(out, data)


@pytest.mark.parametrize(("marker", "refused"), [("audit.json", False), ("run.json", False), ("embed.json", True)])
def test_a_folder_with_the_name_of_known_data_may_be_resumed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str, refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with claimed("digits", marker, {"hash": "1"}, kind="job"):
        pass
    with pytest.raises(ValueError, match="is the folder of the data") if refused else nullcontext():
        refuse_data_folder("digits", "digits")


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with claimed(tmp_path, "run.json", {"hash": "1"}, kind="run"):
        code = "import sys, mohs._core.folders as f\nwith f.claimed(sys.argv[1], 'run.json', {'hash': '1'}, kind='run'): pass"
        answer = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "another process is using this folder" in answer.stderr


def test_what_cannot_be_written_or_read_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match=r"cannot be written \(Not a directory\): give another folder"),
        claimed(tmp_path / "file" / "x", "run.json", {"hash": "1"}, kind="run"),
    ):
        pass
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match=r"run\.json is damaged"), claimed(tmp_path, "run.json", {"hash": "1"}, kind="run"):
        pass
