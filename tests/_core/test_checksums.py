"""Checksums of the files in a folder: damage is noticed, a killed process does no damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mohs._core import checksums
from mohs._core.checksums import MANIFEST, check_file, keep_checksums, list_file, listed, read_json, remove_file, unlist_file
from mohs._core.errors import DataError
from mohs._core.files import written_whole
from mohs._core.folders import claimed

WORDS = {"lost": "all is lost", "repair": "do it again"}


def write(path: Path, text: str) -> None:
    with written_whole(path) as part:
        part.write_text(text)


def checked(path: Path) -> bool:
    return check_file(path, **WORDS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    keep_checksums(tmp_path)
    write(tmp_path / "a.txt", "0123456789" * 100)
    return tmp_path / "a.txt"


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flip": lambda path: path.write_bytes(b"\x31" + path.read_bytes()[1:]),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "empty": lambda path: path.write_bytes(b""),
    "delete": lambda path: path.unlink(),
    "directory": as_directory,
    "append": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "zeros": lambda path: path.write_bytes(path.read_bytes()[:100] + bytes(100) + path.read_bytes()[200:]),
    "swap": lambda path: path.write_text("9876543210" * 100),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed(file: Path, damage: str) -> None:
    assert checked(file)
    DAMAGES[damage](file)
    with pytest.raises(DataError, match=r"a\.txt is (damaged|missing).*: all is lost; do it again"):
        checked(file)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_the_list_itself_is_noticed_and_removing_it_helps(file: Path, damage: str) -> None:
    DAMAGES[damage](file.parent / MANIFEST)
    if damage == "delete":
        assert not checked(file)
        return
    with pytest.raises(DataError, match=r"checksums\.json is damaged .*remove this file to use them unchecked"):
        checked(file)
    shutil.rmtree(file.parent / MANIFEST) if damage == "directory" else (file.parent / MANIFEST).unlink()
    assert not checked(file)


def test_files_that_nobody_listed_are_not_checked_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a")
    assert not (tmp_path / MANIFEST).exists()
    assert not checked(tmp_path / "a.txt")
    assert not checked(tmp_path / "nothing.txt")
    keep_checksums(tmp_path)
    assert not checked(tmp_path / "a.txt")
    list_file(tmp_path / "a.txt")
    assert checked(tmp_path / "a.txt")
    unlist_file(tmp_path / "a.txt")
    assert not checked(tmp_path / "a.txt")


def test_a_removed_file_is_not_missed(file: Path) -> None:
    assert listed(file.parent) == {"a.txt"}
    remove_file(file)
    assert not checked(file)
    assert listed(file.parent) == set()


class Killed(BaseException):
    """Stops a write where a signal could."""


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("new", [True, False])
def test_a_write_that_is_killed_at_any_step_leaves_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, times: int, new: bool
) -> None:
    keep_checksums(tmp_path)
    path = tmp_path / "a.txt"
    if not new:
        write(path, "old")
    for _ in range(times):
        with monkeypatch.context() as patch:
            kill_at(patch, step)
            with pytest.raises(Killed):
                write(path, "killed")
        assert checked(path) or not path.exists()
    write(path, "whole")
    assert checked(path)
    path.write_text("other")
    with pytest.raises(DataError):
        checked(path)


def kill_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """Stop at this rename, before (even) or after it (odd): that of the list, of the file, of the list again."""
    number, rename = 0, Path.replace

    def replace(self: Path, target: Path) -> Path:
        nonlocal number
        number += 1
        if number == 1 + step // 2 and step % 2 == 0:
            raise Killed
        moved = rename(self, target)
        if number == 1 + step // 2:
            raise Killed
        return moved

    patch.setattr(Path, "replace", replace)


def test_several_threads_lose_no_entry(tmp_path: Path) -> None:
    keep_checksums(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: write_own(tmp_path, i), range(64)))
    assert listed(tmp_path) == {f"{i}.txt" for i in range(64)}
    assert all(checked(tmp_path / f"{i}.txt") for i in range(64))


def write_own(folder: Path, i: int) -> None:
    write(folder / f"{i}.txt", str(i))


@pytest.mark.parametrize("text", ["", "null", "[]", "3", '{"a": ', "\x00\x00"])
def test_json_that_is_not_an_object_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DataError, match=r"run\.json is damaged \(.*\): all is lost; do it again"):
        read_json(tmp_path / "run.json", **WORDS)


def test_json_that_is_not_utf_8_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b'{"a": "\xc0"}')
    with pytest.raises(DataError, match=r"run\.json is damaged"):
        read_json(tmp_path / "run.json", **WORDS)


def test_a_marker_that_was_damaged_and_removed_is_written_again_for_the_same_job_only(tmp_path: Path) -> None:
    def claim(name: str) -> None:
        with claimed(tmp_path, "run.json", {"hash": name}, kind="run"):
            pass

    claim("1")
    (tmp_path / "run.json").write_text("null")
    with pytest.raises(DataError, match=r"run\.json is damaged .*remove this file and run the same command again"):
        claim("1")
    (tmp_path / "run.json").unlink()
    with pytest.raises(RuntimeError, match="holds another run"):
        claim("2")
    claim("1")
    assert json.loads((tmp_path / "run.json").read_text()) == {"hash": "1"}
    assert checked(tmp_path / "run.json")


def test_a_folder_without_locks_still_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums.os, "open", lambda *_: (_ for _ in ()).throw(OSError("no folders can be opened")))
    keep_checksums(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    list_file(tmp_path / "a.txt")
    assert checked(tmp_path / "a.txt")


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    for arguments in ((28, "No space left on device", "{}"), ("[Errno 28] Failed to open local file '{}'",)):
        with pytest.raises(OSError, match=r"table\.csv") as raised, written_whole(file) as part:
            raise OSError(*(one.format(part) if isinstance(one, str) else one for one in arguments))
        assert raised.value.filename == str(file)
        assert ".part" not in str(raised.value)
    with pytest.raises(OSError, match="elsewhere"), written_whole(file):
        raise OSError(2, "No such file", "elsewhere")
