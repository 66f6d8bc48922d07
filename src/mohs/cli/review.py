"""`mohs review`: decide on the labels of an audit in the browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mohs.cli import shared_options as o

EPILOG = """\b
Examples:
  mohs review runs/photos
  mohs review table.parquet --label class --images photos/
  mohs review runs/photos --host 0.0.0.0 --port 8000     for reviewers on other machines
  mohs apply runs/photos runs/photos/decisions.log --to labels.csv"""
LEAST_TOKEN = 8

RunWord = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished audit, or a Parquet table.")]
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="Label column of a table.")]
Text = Annotated[str | None, typer.Option(metavar="COLUMN", help="Text column of a table.")]
Images = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder of the images; their paths in the table are relative to it.")
]
Name = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Name of the reviewer in the log; default: user name.")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all network interfaces.")]
Port = Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="Port to listen on; 0 for any free port.")]
Token = Annotated[str | None, typer.Option(metavar="TOKEN", help="Secret token that reviewers need; default: a random one.")]
Allow = Annotated[list[str] | None, typer.Option(metavar="HOST", help="Host name of a proxy that serves the app. Repeatable.")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the app in a browser.")]


def review(
    run: RunWord,
    label: Label = None,
    text: Text = None,
    images: Images = None,
    name: Name = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    token: Token = None,
    allow: Allow = None,
    open_it: Open = True,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Review an audit in the browser. Every decision is kept in a log in the audit's folder. Ctrl+C stops the server."""
    import secrets
    import socket

    if token is not None and len(token) < LEAST_TOKEN:
        raise ValueError(f"--token must have at least {LEAST_TOKEN} characters")
    from mohs.review.access import LOCAL, Access
    from mohs.review.review import check_name, open_review
    from mohs.review.server import listen, serve
    from mohs.review.source import open_source

    by = check_name(name if name is not None else _user())
    opened = open_review(open_source(run, label=label, text=text, images=images))
    sock, port = listen(host, port)
    everywhere, here = host in ("0.0.0.0", "::"), socket.gethostname()
    hosts = (*LOCAL, here if everywhere else host, *(allow or ()))
    access = Access(token or secrets.token_urlsafe(16), hosts=hosts, port=port)
    shown = "127.0.0.1" if everywhere else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/?token={access.token}"
    if as_json:
        typer.echo(json.dumps({"address": address, "examples": opened.database.total, "log": str(opened.source.log)}))
    elif not quiet:
        typer.echo(f"{opened.database.total:,} examples of {opened.source.name}; decisions go to {opened.source.log}")
        typer.echo(f"review: {address}  (Ctrl+C stops it)")
        if everywhere:
            typer.echo(f"from other machines: http://{here}:{port}/?token={access.token}  (or this machine's IP address)")
    if open_it:
        typer.launch(address)
    try:
        serve(opened, access, by, sock)
    except KeyboardInterrupt:  # Ctrl+C is how the server is stopped
        if not quiet:
            typer.echo(f"{len(opened.decided()):,} examples are decided in {opened.source.log}", err=True)
    finally:
        opened.close()


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "reviewer"
