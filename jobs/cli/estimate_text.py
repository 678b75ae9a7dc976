"""What `pagemill estimate` found, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobs.cli.console import duration, one_line, plural, size

if TYPE_CHECKING:
    from jobs.speeds import MeasuredSpeed

_NAME_WIDTH = len("prompt tokens")
_SHORT_SECONDS = 30.0


def report(
    found: Mapping[str, Any], speed: MeasuredSpeed | None, seconds: float | None, trial: str
) -> Iterator[str]:
    """The lines, each with its name before it.

    Args:
        seconds: that the job takes at most, at that speed.
        trial: a command that measures the speed.
    """
    for name, line in _lines(found, speed, seconds, trial):
        yield f"{name:<{_NAME_WIDTH}}  {one_line(line)}"


def _lines(
    found: Mapping[str, Any], speed: MeasuredSpeed | None, seconds: float | None, trial: str
) -> Iterator[tuple[str, str]]:
    yield from _rows(found)
    yield from _tokens(found)
    yield from _memory(found)
    yield "speed", _speed(speed, trial)
    if speed is not None:
        yield "time", _time(speed, seconds)


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rows = found["rows"]
    yield "rows", f"{rows['good']:,} can be answered, {rows['refused']:,} are refused"
    for error in rows["errors"]:
        yield "", f"line {error['line']}: {error['message']} [{error['code']}]"
    if found["sampled_rows"] is not None:
        yield (
            "sample",
            (
                f"{plural(found['sampled_rows'], 'row')} were tokenized; what follows is reckoned "
                "from these"
            ),
        )


def _tokens(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    prompt, block_size = found["prompt_tokens"], found["kv"]["block_size"]
    total, shared = prompt["total"], found["shared_tokens"]
    yield (
        "prompt tokens",
        (
            f"{total:,} (a row: median {prompt['median']:,}, 95% up to {prompt['p95']:,}, "
            f"longest {prompt['max']:,})"
        ),
    )
    share = shared / total if total else 0.0
    yield (
        "shared",
        (
            f"at most {shared:,} of them ({share:.0%}) come from the prefix cache, in blocks of "
            f"{block_size}"
        ),
    )
    line = f"at most {plural(found['completion_tokens'], 'token')}"
    if found["cut_short"]:
        line += (
            f"; {plural(found['cut_short'], 'row')} may reach the end of the context "
            f"({found['model']['max_model_len']:,} tokens) before max_tokens"
        )
    yield "answers", line


def _memory(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kv, weights, machine, fits = (found[key] for key in ("kv", "weights", "machine", "fits"))
    yield (
        "weights",
        (
            f"{size(weights['bytes'])}: {plural(weights['parameters'], 'parameter')} in "
            f"{weights['dtype']}"
        ),
    )
    yield (
        "KV cache",
        (
            f"{size(kv['bytes_per_token'])} a token ({plural(kv['layers'], 'layer')}, "
            f"{plural(kv['kv_heads'], 'KV head')} of {kv['head_dim']}, {kv['dtype']})"
        ),
    )
    rows, at_once, block = kv["row_blocks"], kv["blocks_at_once"], kv["block_bytes"]
    yield (
        "",
        (
            f"a row with the longest answer takes {plural(rows['median'], 'block')} "
            f"({size(rows['median'] * block)}) in the median, at most {rows['max']:,} "
            f"({size(rows['max'] * block)})"
        ),
    )
    yield (
        "",
        (
            f"{plural(kv['rows_at_once'], 'row')} at once, if they shared nothing: "
            f"{plural(at_once['mean'], 'block')} ({size(at_once['mean'] * block)}) in the mean, at "
            f"most {at_once['max']:,} ({size(at_once['max'] * block)})"
        ),
    )
    yield "here", _fit(kv, machine, fits)


def _fit(kv: Mapping[str, Any], machine: Mapping[str, Any], fits: Mapping[str, bool]) -> str:
    blocks, device = machine["kv_blocks"], machine["device"]
    room, most = f"{size(machine['usable_bytes'])} of memory", ""
    if device != "cpu":
        room = f"{size(machine['usable_bytes'])} of {device}"
        room += f" ({machine['name']}, {size(machine['total_bytes'])})"
        most = "at most "  # what activations take is measured when an engine starts
    if not fits["weights"]:
        return f"does not fit: the weights need more than the {room} that is free"
    cache = (
        f"beside the weights, the {room} that is free holds a KV cache of {most}"
        f"{plural(blocks, 'block')} ({size(blocks * kv['block_bytes'])})"
    )
    if not fits["every_row"]:
        return (
            f"does not fit wholly: {cache}, and {plural(fits['rows_over'], 'row')} may need more; "
            "lower --max-tokens, or take a smaller --kv-cache-dtype"
        )
    if not fits["all_at_once"]:
        once = blocks // max(1, kv["row_blocks"]["median"])
        return f"fits: {cache}, which is about {plural(once, 'row')} at once"
    return f"fits: {cache}"


def _speed(speed: MeasuredSpeed | None, trial: str) -> str:
    if speed is None:
        return f"never measured: run a small job first: {trial}"
    at = speed.at.astimezone().isoformat(" ", "minutes")
    rate = f"{speed.tokens_per_second:,.0f} tokens/s generated"
    if speed.source == "worker":
        return f"{rate}, as worker {speed.id} on {_device(speed)} said last at {at}"
    assert speed.seconds is not None
    line = (
        f"{rate}, with {speed.computed_tokens / speed.seconds:,.0f} prompt tokens/s: job "
        f"{speed.id} at {at}, in {duration(speed.seconds)}"
    )
    if speed.seconds < _SHORT_SECONDS:
        line += " (a longer one would tell more)"
    if speed.worker is None:
        return line
    return f"{line}, begun by worker {speed.worker} on {_device(speed)}"


def _device(speed: MeasuredSpeed) -> str:
    if speed.device is None:
        return "a device that is not known any more"
    return f"{speed.device} in {speed.dtype}"


def _time(speed: MeasuredSpeed, seconds: float | None) -> str:
    if seconds is None:
        return "cannot be told: what was measured had no tokens of one of the kinds"
    what = "for the answers alone" if speed.source == "worker" else "for prompts and answers"
    return (
        f"at most {duration(seconds)} {what} at that speed, if all answers are as long as they may "
        "be"
    )
