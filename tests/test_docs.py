"""The documentation: every block is run as it stands, every link leads somewhere, every command and option it names is there.

The pages share one folder, so that an audit is trained once. Each runs in a process of its own, forked from one that has
imported mohs and torch. Above a block may stand a comment:

    <!-- not run: why -->   <!-- needs: package -->   <!-- file: name -->     the last: the block is written under that name
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import mohs
from mohs.cli import app, main

DOCS = Path(mohs.__file__).parents[2] / "docs"
WRITTEN_BY_HAND = sorted(page for page in DOCS.glob("*.md") if page.name not in ("claims.md", "what-to-use.md"))
BLOCK = re.compile(r"(?:^<!-- (not run|needs|file): (.*?) -->\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
INLINE = re.compile(r"`(mohs [^`]+)`")
PRELOADED = ("altair", "PIL.Image", "sklearn.ensemble", "sklearn.neighbors", "torch._dynamo")  # several pages need them
RunApart = Callable[[Path], tuple[int, str]]


def blocks(page: Path) -> list[tuple[str, str, str, str]]:
    """Mark, its words, language and text of each block of a page."""
    return BLOCK.findall(page.read_text())


def run_page(page: Path) -> None:
    """Run every block in this folder, one after another; what the blocks import is imported once."""
    for number, (mark, words, language, text) in enumerate(blocks(page)):
        print(f"{page.name}, block {number} ({language})", file=sys.stderr)
        if mark == "file":
            Path(words).write_text(text)
        elif mark == "not run" or (mark == "needs" and importlib.util.find_spec(words) is None):
            continue
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("default" if mark == "needs" else "error")  # others' packages may warn
                RUNNERS[language](text)


def run_python(text: str) -> None:
    exec(compile(text, "block", "exec"), {"__name__": "__main__"})


def run_shell(text: str) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        sys.argv = shlex.split(line, comments=True)
        if not sys.argv:
            continue
        assert sys.argv[0] == "mohs", f"mark the block, or take out what is no command of mohs: {line}"
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise


RUNNERS = {"python": run_python, "sh": run_shell}


def bundle_once() -> None:
    """Bundle Vega's scripts once for all pages, which takes seconds; elsewhere, since its threads would not survive a fork."""
    import vl_convert

    code = "import vl_convert; print(vl_convert.javascript_bundle(), end='')"
    script = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    vl_convert.javascript_bundle = lambda: script


def serve() -> None:
    """Run each page that standard input names in a process forked from this one; print its exit code, write output.txt."""
    for name in mohs.__all__:
        getattr(mohs, name)
    for name in PRELOADED:
        importlib.import_module(name)
    if importlib.util.find_spec("vl_convert") is not None:
        bundle_once()
    gc.freeze()  # pages share the memory of what is imported
    for line in sys.stdin:
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        os.dup2(os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        code = 0
        try:
            run_page(Path(line.strip()))
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        os._exit(code)  # without a teardown of torch, which takes a second


@pytest.fixture(scope="module")
def run_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunApart]:
    """A function that runs a page in the folder and returns exit code and output."""
    here, env = tmp_path_factory.mktemp("docs"), os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        [sys.executable, __file__], cwd=here, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin
        assert server.stdout

        def run(page: Path) -> tuple[int, str]:
            print(page, file=server.stdin, flush=True)
            return int(server.stdout.readline()), (here / "output.txt").read_text(errors="replace")

        yield run


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=lambda page: page.stem)
def test_blocks_run(page: Path, run_apart: RunApart) -> None:
    code, output = run_apart(page)
    assert code == 0, output


def test_a_block_that_fails_is_noticed(run_apart: RunApart, tmp_path: Path) -> None:
    (page := tmp_path / "page.md").write_text("```python\nimport mohs\nmohs.margin(1, 2, 3)\n```\n")
    code, output = run_apart(page)
    assert code == 1
    assert "page.md, block 0 (python)" in output
    assert "TypeError" in output


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=lambda page: page.stem)
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_page_is_in_the_index() -> None:
    linked = set(LINK.findall((DOCS / "index.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= linked


@cache
def commands() -> dict[str, Any]:
    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=lambda page: page.stem)
def test_commands_and_options_exist(page: Path) -> None:
    """In sentences too, and in blocks that are not run."""
    scripts = [text.replace("\\\n", " ") for _, _, language, text in blocks(page) if language == "sh"]
    lines = [*INLINE.findall(page.read_text()), *(line for text in scripts for line in text.splitlines())]
    for line in lines:
        words = shlex.split(line, comments=True)
        if "mohs" not in words:
            continue
        after = words[words.index("mohs") + 1 :]
        if not after or after[0].startswith("-"):
            continue
        assert after[0] in commands(), line
        known = {option for parameter in commands()[after[0]].params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in after[1:]:
            if word.startswith("--"):
                assert word.partition("=")[0] in {*known, "--help"}, line


def journey() -> list[str]:
    """The functions of the journey through `mohs audit` in architecture.md, as dotted names, in the order of its table."""
    text = (DOCS / "architecture.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| (`.*?`) \|", text[text.index("## The journey") : text.index("`audit.pipeline.choose_judge`")], re.M
    )
    return [f"mohs.{package}.{name}" for package, names in rows for name in re.findall(r"`([\w.]+)`", names)]


def test_the_journey_in_the_architecture_is_that_of_an_audit(run_apart: RunApart, tmp_path: Path) -> None:
    """The documented functions exist, and an audit calls them for the first time in the documented order."""
    named = journey()
    assert len(named) >= 9
    packages = [name.split(".")[1] for name in named]
    assert packages == sorted(packages, key=packages.index), "each package is visited once"
    rows = [f"{'good fine great' if i % 2 else 'bad poor awful'} film number {i},{'pos' if i % 2 else 'neg'}" for i in range(60)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    code = f"""
import os, sys
os.chdir({str(tmp_path)!r})
os.environ["MOHS_CACHE"] = "cache"
called = []
last = {{name.rpartition(".")[2] for name in {named!r}}}
def watch(frame, event, argument):
    if event == "call" and frame.f_code.co_name in last:
        name = f"{{frame.f_globals.get('__name__')}}.{{frame.f_code.co_name}}"
        if name in {named!r} and name not in called:
            called.append(name)
sys.argv = ["mohs", "audit", "reviews.csv", "--embed", "tfidf", "--out", "audit", "--quiet", "--device", "cpu"]
import mohs.cli
sys.setprofile(watch)
try:
    mohs.cli.main()
except SystemExit as end:
    assert not end.code, end.code
sys.setprofile(None)
assert called == {named!r}, called
"""
    (page := tmp_path / "page.md").write_text(f"```python\n{code}```\n")
    end, output = run_apart(page)
    assert end == 0, output


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=lambda page: page.stem)
def test_every_block_has_a_language(page: Path) -> None:
    """A block without a language would not be run."""
    fences = re.findall(r"^```", page.read_text(), re.M)
    assert len(fences) == 2 * len(blocks(page))


@pytest.mark.parametrize("image", sorted((DOCS / "images").glob("*.webp")), ids=lambda image: image.name)
def test_images_are_small(image: Path) -> None:
    assert image.stat().st_size <= 150_000


if __name__ == "__main__":
    serve()
