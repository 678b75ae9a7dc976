"""`python -P -m worker.doctor`: what `pagemill doctor` asks of torch, triton and model files.

A process of its own, since each of them may hang, or take the process with it. It prints a line of
JSON for each finding, as soon as it is known.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from jobs.doctor.findings import Finding, fault
from jobs.errors import SettingsError
from jobs.settings import Settings

Look = Callable[[], Iterator[Finding]]


def main(arguments: Sequence[str]) -> int:
    """Look at all there is; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -P -m worker.doctor", allow_abbrev=False)
    parser.add_argument("--model")
    model: str | None = parser.parse_args(arguments).model
    # What libraries print must not come between the findings.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        for finding in _findings(model):
            print(json.dumps(dataclasses.asdict(finding)), file=out, flush=True)
    return 0


def _findings(model: str | None) -> Iterator[Finding]:
    from worker.doctor_devices import check_cpu_kernels, check_torch, check_triton
    from worker.doctor_packages import check_cache, check_kernels, check_packages

    yield from check_worker_settings(os.environ)
    looks: list[tuple[str, Look]] = [
        ("packages", check_packages),
        ("kernels", check_kernels),
        ("torch", check_torch),
        ("triton", check_triton),
        ("cpu kernels", check_cpu_kernels),
        ("cache", check_cache),
    ]
    for name, look in looks:
        yield from _survived(name, look)
    if model is not None:
        from worker.doctor_model import check_model

        yield from _survived("model", lambda: check_model(model))


def _survived(name: str, look: Look) -> Iterator[Finding]:
    """The findings of a look; an error that nobody foresaw is one, and the others go on."""
    try:
        yield from look()
    except Exception as error:
        yield fault(
            name,
            f"{type(error).__name__}: {error}",
            "install pagemill again in an environment of its own, with the versions of "
            "constraints.txt",
        )


def check_worker_settings(env: Mapping[str, str]) -> Iterator[Finding]:
    """What only workers read; a finding only where it cannot work."""
    from worker.options import WorkerOptions

    with contextlib.suppress(SettingsError):  # of which `jobs` has told
        Settings.from_env(env)
        try:
            WorkerOptions.parse(["--model", "any"], env)
        except SettingsError as error:
            yield fault("settings", str(error), "correct the variable")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
