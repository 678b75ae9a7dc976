"""The worker's command line; the one place of this package that reads the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from jobs.settings import Settings


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker runs.

    Attributes:
        engine: settings for `engine.config.EngineConfig`, `model` among them.
        concurrency: chunks that are in the engine at once. Two engines' worth of rows keeps
            the batch full while a chunk ends and the next is tokenized.
        exit_when_done: leave once this job has ended.
        watch_parent: leave when the process that started this one is gone.
    """

    settings: Settings
    model: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 4
    exit_when_done: str | None = None
    watch_parent: bool = False

    @classmethod
    def parse(cls, arguments: Sequence[str], env: Mapping[str, str] = os.environ) -> Self:
        given = vars(_parser().parse_args(arguments))
        engine = {name: given[name] for name in _ENGINE_OPTIONS if given[name] is not None}
        if given["no_prefix_cache"]:
            engine["enable_prefix_caching"] = False
        if env.get("PAGEMILL_CHECK_INVARIANTS") == "1":
            engine["check_invariants"] = True
        return cls(
            settings=Settings.from_env(env),
            model=given["model"],
            engine={"model": given["model"], **engine},
            concurrency=given["concurrency"],
            exit_when_done=given["exit_when_done"],
            watch_parent=given["watch_parent"],
        )


_ENGINE_OPTIONS: dict[str, type] = {
    "dtype": str,
    "device": str,
    "block_size": int,
    "num_blocks": int,
    "max_model_len": int,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "threads": int,
    "gpu_memory_utilization": float,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -P -m worker", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--concurrency", type=_positive, default=4)
    parser.add_argument("--exit-when-done", metavar="JOB")
    parser.add_argument("--watch-parent", action="store_true")
    parser.add_argument("--no-prefix-cache", action="store_true")
    for name, kind in _ENGINE_OPTIONS.items():
        parser.add_argument("--" + name.replace("_", "-"), type=kind)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number
