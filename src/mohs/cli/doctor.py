"""`mohs doctor`: check the installation, and say how to fix what is missing or broken."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mohs.cli import shared_options as o

if TYPE_CHECKING:
    from mohs.cli.environment import Health, Package

EPILOG = """\b
Examples:
  mohs doctor
  mohs doctor --no-self-test --json"""
BROKEN = 4


def doctor(
    self_test: Annotated[
        bool,
        typer.Option("--self-test/--no-self-test", help="Train a small network, write a table and a report."),
    ] = True,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Check this installation: versions, hardware, optional extras and a self-test. Exits with 4 if a requirement is broken."""
    from mohs.cli.environment import examine

    health = examine(test=self_test)
    if as_json:
        typer.echo(json.dumps(plain(health), ensure_ascii=False))
    elif not quiet:
        _print(health)
    if not health.fine:
        raise typer.Exit(BROKEN)


def plain(health: Health) -> dict[str, Any]:
    """The findings as JSON, with the state of each extra."""
    made = dataclasses.asdict(health)
    for extra, shown in zip(health.extras, made["extras"], strict=True):
        shown["state"] = extra.state
    return {"fine": health.fine, **made}


def _print(health: Health) -> None:
    typer.echo(f"mohs {health.mohs}, Python {health.python}, {health.system}")
    for line in _machine(health.machine):
        typer.echo(line)
    typer.echo("\nrequirements")
    for package in health.packages:
        typer.echo(f"    {_state(package):<8} {package.name} {package.version or ''}{_problem(package)}".rstrip())
    typer.echo("\nextras")
    for extra in health.extras:
        names = ", ".join(f"{one.name} {one.version or '(not installed)'}{_problem(one)}" for one in extra.packages)
        typer.echo(f"    {extra.state:<8} {extra.name:<10} {extra.purpose}\n{'':<24}{names}")
    if health.checks:
        typer.echo("\nself-test")
    for check in health.checks:
        typer.echo(f"    {'ok' if check.passed else 'FAILED':<8} {check.name:<10} {check.detail}")
    typer.echo("\n" + ("all requirements work" if health.fine else "a requirement is missing or broken"))
    for line in health.advice:
        typer.echo(f"    {line}")


def _machine(machine: dict[str, Any]) -> list[str]:
    memory = f", {machine['memory'] / 1e9:,.0f} GB of memory" if machine["memory"] else ""
    lines = [f"{machine['cores']} cores{memory}, {machine['disk_free'] / 1e9:,.0f} GB free on this disk"]
    lines += [f"GPU: {gpu['name']}, {gpu['free'] / 1e9:,.0f} of {gpu['memory'] / 1e9:,.0f} GB free" for gpu in machine["gpus"]]
    if not machine["gpus"]:
        lines.append(f"GPU: none available to torch{': ' + machine['gpu_problem'] if 'gpu_problem' in machine else ''}")
    lines.append(
        f"data sets by name: in {machine['data_folder']} (MOHS_DATA)"
        if machine["data_folder"]
        else "data sets by name: only digits, because MOHS_DATA is not set"
    )
    return lines


def _state(package: Package) -> str:
    return "ok" if package.works else "BROKEN" if package.problem else "MISSING"


def _problem(package: Package) -> str:
    return f" ({package.problem})" if package.problem else ""
