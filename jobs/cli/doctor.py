"""`pagemill doctor`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import console, one_line, plural, visible
from jobs.cli.deployment import model_name
from jobs.cli.options import Json

if TYPE_CHECKING:
    from rich.console import Console

    from jobs.doctor.findings import Finding
    from jobs.doctor.running import Check

_STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red"}
_LEVEL_WIDTH, _NAME_WIDTH = len("warning"), len("cpu kernels")
_OUTSIDE_SECONDS = 20.0  # for a database, a broker, a disk, a driver


def doctor(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Look for the files of this model, too; nothing is downloaded.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for what is wrong on this machine, and say what to do.

    Settings, database, clock, workers, broker, storage, GPU and driver, torch, triton, kernels,
    room on the disks, and model files. Whatever hangs is told of after a while. Ends with 0 if
    there is no fault (there may be warnings), else with 1.

    \b
    Examples:
      pagemill doctor --model smollm2-135m
      pagemill doctor --json | jq '.[] | select(.level != "ok")'
    """
    from jobs.doctor.running import examine

    found: list[Finding] = []
    shown = console(sys.stdout)
    for finding in examine(_checks(None if model is None else model_name(model))):
        finding = _without_secrets(finding)
        found.append(finding)
        if not as_json:
            _show(shown, finding)
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in found]))
    faults, warnings = (
        sum(finding.level == level for finding in found) for level in ("fault", "warning")
    )
    if not as_json:
        shown.print(f"{plural(faults, 'fault')}, {plural(warnings, 'warning')}", soft_wrap=True)
    raise typer.Exit(1 if faults else 0)


def _checks(model: str | None) -> list[Check]:
    from jobs.doctor import broker_check, computing_check, database_check, gpu_check, storage_check
    from jobs.doctor.running import Check
    from jobs.doctor.settings_check import check_settings
    from jobs.errors import SettingsError
    from jobs.settings import Settings

    checks = [Check("settings", partial(check_settings, os.environ), _OUTSIDE_SECONDS, "")]
    with contextlib.suppress(SettingsError):  # of which that check tells
        settings = Settings.from_env()
        for name, look, advice in (
            ("database", database_check.check_database, database_check.ADVICE),
            ("broker", broker_check.check_broker, broker_check.ADVICE),
            ("storage", storage_check.check_storage, storage_check.ADVICE),
        ):
            checks.append(Check(name, partial(look, settings), _OUTSIDE_SECONDS, advice))
    computing = partial(computing_check.check_computing, model)
    return [
        *checks,
        Check("gpu", gpu_check.check_gpu, _OUTSIDE_SECONDS, gpu_check.ADVICE),
        # It has a limit of its own, at which it ends its process.
        Check(
            "computing", computing, computing_check.SECONDS + _OUTSIDE_SECONDS,
            computing_check.ADVICE,
        ),
    ]  # fmt: skip


def _show(shown: Console, finding: Finding) -> None:
    from rich.text import Text

    head = Text(f"{finding.level:<{_LEVEL_WIDTH}}", style=_STYLES[finding.level])
    line = Text(f"  {finding.name:<{_NAME_WIDTH}}  {visible(one_line(finding.found))}")
    shown.print(head + line, soft_wrap=True)
    if finding.advice:
        indent = " " * (_LEVEL_WIDTH + _NAME_WIDTH + 4)
        shown.print(f"{indent}-> {one_line(finding.advice)}", soft_wrap=True)


def _without_secrets(finding: Finding) -> Finding:
    """Drivers and libraries may quote the URLs that they were given."""
    from jobs.scrubbing import Sieve

    return dataclasses.replace(finding, found=Sieve.of_env()(finding.found))
