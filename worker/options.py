"""The worker's command line; the one place of this package that reads the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from engine.logs import FORMATS, LEVELS
from jobs.errors import SettingsError
from jobs.settings import Settings

LOCAL_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker runs.

    Attributes:
        engine: settings for `engine.config.EngineConfig`, `model` among them.
        concurrency: chunks that are in the engine at once. Two engines' worth of rows keeps
            the batch full while a chunk ends and the next is tokenized.
        exit_when_done: leave once this job has ended.
        watch_parent: leave when the process that started this one is gone.
        log_format: `text` or `json`, of this process and its engine.
        log_level: of this process and its engine.
        metrics_port: where metrics and health are served; 0 is any free port, None is nowhere.
        metrics_host: the address to listen on.
        progress_seconds: how often a line of the log tells how far the work is.
    """

    settings: Settings
    model: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 4
    exit_when_done: str | None = None
    watch_parent: bool = False
    log_format: str = "text"
    log_level: str = "info"
    metrics_port: int | None = None
    metrics_host: str = LOCAL_HOST
    progress_seconds: float = 30.0

    @classmethod
    def parse(cls, arguments: Sequence[str], env: Mapping[str, str] = os.environ) -> Self:
        """Read the command line, and the environment for what it does not say.

        Raises:
            SettingsError: a variable of the environment cannot work.
            SystemExit: the arguments cannot; usage was printed.
        """
        given = vars(_parser().parse_args(arguments))
        engine = {name: given[name] for name in _ENGINE_OPTIONS if given[name] is not None}
        if given["no_prefix_cache"]:
            engine["enable_prefix_caching"] = False
        if given["deterministic"]:
            engine["deterministic"] = True
        for switch in _ENGINE_SWITCHES:
            if given[switch] is not None:
                engine[switch] = given[switch]
        if env.get("PAGEMILL_CHECK_INVARIANTS") == "1":
            engine["check_invariants"] = True
        port: int | None = given["metrics_port"]
        return cls(
            settings=Settings.from_env(env),
            model=given["model"],
            engine={"model": given["model"], **engine},
            concurrency=given["concurrency"],
            exit_when_done=given["exit_when_done"],
            watch_parent=given["watch_parent"],
            log_format=given["log_format"] or _choice(env, "PAGEMILL_LOG_FORMAT", FORMATS, "text"),
            log_level=given["log_level"] or _choice(env, "PAGEMILL_LOG_LEVEL", LEVELS, "info"),
            metrics_port=_port_of(env) if port is None else port,
            metrics_host=given["metrics_host"] or env.get("PAGEMILL_METRICS_HOST") or LOCAL_HOST,
            progress_seconds=_seconds(env, "PAGEMILL_PROGRESS_SECONDS", 30.0),
        )

    def engine_env(self) -> dict[str, str]:
        """What the engine process reads from its environment."""
        return {"PAGEMILL_LOG_FORMAT": self.log_format, "PAGEMILL_LOG_LEVEL": self.log_level}


_ENGINE_OPTIONS: dict[str, type] = {
    "dtype": str,
    "device": str,
    "block_size": int,
    "num_blocks": int,
    "kv_cache_dtype": str,
    "max_model_len": int,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "threads": int,
    "gpu_memory_utilization": float,
    "swap_space": float,
    "watermark": float,
}


# On, off, or as the device is.
_ENGINE_SWITCHES = ("overlap", "cuda_graphs")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -P -m worker", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--concurrency", type=_positive, default=4)
    parser.add_argument("--exit-when-done", metavar="JOB")
    parser.add_argument("--watch-parent", action="store_true")
    parser.add_argument("--log-format", choices=FORMATS)
    parser.add_argument("--log-level", choices=LEVELS)
    parser.add_argument("--metrics-port", type=_port)
    parser.add_argument("--metrics-host")
    parser.add_argument("--no-prefix-cache", action="store_true")
    parser.add_argument("--deterministic", action="store_true")
    for name in _ENGINE_SWITCHES:
        parser.add_argument("--" + name.replace("_", "-"), action=argparse.BooleanOptionalAction)
    for name, kind in _ENGINE_OPTIONS.items():
        parser.add_argument("--" + name.replace("_", "-"), type=kind)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _choice(env: Mapping[str, str], name: str, choices: Sequence[str], default: str) -> str:
    value = (env.get(name) or default).lower()
    if value not in choices:
        raise SettingsError(f"{name} is {env[name]!r}; it must be one of {', '.join(choices)}")
    return value


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is no port, 0 to 65535")
    return int(text)


def _port_of(env: Mapping[str, str]) -> int | None:
    name = "PAGEMILL_METRICS_PORT"
    if not env.get(name):
        return None
    try:
        return _port(env[name])
    except argparse.ArgumentTypeError as error:
        raise SettingsError(f"{name}: {error}") from None


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(env.get(name) or default)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise SettingsError(f"{name} is {env[name]!r}; it must be a number of seconds over 0")
    return value
