"""What the engine generates, with CUDA graphs and overlapped, and without."""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.gpu.ceilings import shown
from benchmarks.gpu.device import Device
from benchmarks.gpu.items import Item, Surroundings
from benchmarks.gpu.random_model import load, prompts, write_files
from benchmarks.gpu.shapes import BLOCK_SIZE, Shape, shapes
from engine import core
from engine.config import EngineConfig
from engine.core import Engine
from engine.host_copy import HostCopy
from engine.loading import ModelFiles
from engine.loading.loaded import LoadedModel
from engine.request import Request
from engine.sampling_params import SamplingParams

ROWS, PROMPT, ANSWER = 64, 512, 128
MODEL_LEN = 8192  # captured graphs are laid out for it
# Name, whether decodes are replayed as graphs, and whether the host is a step ahead.
WAYS = {
    "graphs, overlapped": (True, True),
    "graphs": (True, False),
    "overlapped": (False, True),
    "neither": (False, False),
}
_PROFILED_STEPS = 30


def engine_name(way: str, shape: Shape) -> str:
    return f"engine {way}, {shape.name}"


def targets(dry: bool) -> Iterator[Item]:
    """The one that there is a target for."""
    yield _item("graphs, overlapped", shapes(dry)[0], dry)


def items(dry: bool) -> Iterator[Item]:
    """The others."""
    first = {item.name for item in targets(dry)}
    for shape in shapes(dry):
        for way in list(WAYS)[: 1 if dry else None]:
            item = _item(way, shape, dry)
            if item.name not in first:
                yield item


def sizes(dry: bool) -> tuple[int, int, int]:
    """Rows, tokens of their prompts, and of their answers."""
    return (2, 17, 4) if dry else (ROWS, PROMPT, ANSWER)


def _item(way: str, shape: Shape, dry: bool) -> Item:
    # The first one of a process makes the weights and compiles all kernels.
    run = partial(_measure, shape, *WAYS[way])
    return Item(engine_name(way, shape), f"engine {shape.name}", run, limit=150.0)


def _measure(shape: Shape, graphs: bool, overlap: bool, given: Surroundings) -> dict[str, Any]:
    device = given.device
    rows, prompt, answer = sizes(device.dry)
    files, loaded = _model(shape, device)
    engine = _engine(files, loaded, graphs, overlap, device.dry)
    _generate(engine, shape, min(rows, 4), prompt, 2, "warm")  # compiles, captures
    if not device.dry:
        _generate(engine, shape, rows, prompt // 2, 4, "warmer")
    with _waits() as waited:
        done = _generate(engine, shape, rows, prompt, answer, "timed", waited)
    decodes = done.steps[-answer // 2 :]  # by then nothing but decodes is left
    busy = _busy(engine, shape, device)
    wall = statistics.median(step for step, _ in decodes)
    return {
        "rows": rows, "prompt_tokens": prompt, "answer_tokens": answer,
        "tokens_per_s": shown(rows * answer / done.seconds),
        "decode_step_ms": shown(wall * 1e3),
        "decode_tokens_per_s": shown(rows / wall),
        "host_ms": shown(statistics.median(step - wait for step, wait in decodes) * 1e3),
        "gpu_busy": None if busy is None else round(busy, 4),
    }  # fmt: skip


class _Done:
    """What a generation took.

    Attributes:
        steps: seconds of each step, and how many of them the host waited for the device.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps: list[tuple[float, float]] = []


def _generate(
    engine: Engine, shape: Shape, rows: int, prompt: int, answer: int, name: str,
    waited: list[float] | None = None,
) -> _Done:  # fmt: skip
    done, began = _Done(), time.perf_counter()
    _add(engine, shape, rows, prompt, answer, name)
    tokens = 0
    while engine.has_unfinished:
        step_began, before = time.perf_counter(), sum(waited or ())
        tokens += sum(len(output.token_ids) for output in engine.step())
        done.steps.append((time.perf_counter() - step_began, sum(waited or ()) - before))
        if waited is not None:
            waited.clear()
    done.seconds = time.perf_counter() - began
    assert tokens == rows * answer, f"{tokens} tokens came, {rows * answer} were asked for"
    return done


def _add(engine: Engine, shape: Shape, rows: int, prompt: int, answer: int, name: str) -> None:
    rules = SamplingParams(answer, ignore_eos=True)
    for number, ids in enumerate(prompts(shape, rows, prompt)):
        engine.add(Request(f"{name} {number}", (2 + len(name), *ids[1:]), rules))


def _busy(engine: Engine, shape: Shape, device: Device) -> float | None:
    """Share of the time that the device computes, in steps of decodes alone."""
    rows, prompt, _ = sizes(device.dry)
    # Some decode while other prompts are still computed.
    steps, before = (1, 1) if device.dry else (_PROFILED_STEPS, 6)
    _add(engine, shape, rows, prompt, 3 if device.dry else steps + 40, "busy")
    while engine.stats.waiting or engine.scheduler.num_running < rows:
        engine.step()
    for _ in range(before):
        engine.step()
    share = device.busy(lambda: [engine.step() for _ in range(steps)])
    while engine.has_unfinished:
        engine.step()
    return share


@contextmanager
def _waits() -> Iterator[list[float]]:
    """Seconds of each wait for the device."""
    found: list[float] = []
    wait = HostCopy.wait

    def timed(copy: HostCopy) -> Any:
        began = time.perf_counter()
        result = wait(copy)
        found.append(time.perf_counter() - began)
        return result

    with mock.patch.object(HostCopy, "wait", timed):
        yield found


@functools.cache
def _model(shape: Shape, device: Device) -> tuple[ModelFiles, LoadedModel]:
    """The files live as long as the process."""
    folder = tempfile.TemporaryDirectory()
    _FOLDERS.append(folder)
    files = write_files(shape, Path(folder.name))
    return files, load(files, device)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _engine(
    files: ModelFiles, loaded: LoadedModel, graphs: bool, overlap: bool, dry: bool
) -> Engine:
    rows, prompt, answer = sizes(dry)
    config = EngineConfig(
        files.name, device=str(loaded.device), dtype="bfloat16", block_size=BLOCK_SIZE,
        num_blocks=2 * rows * -(-(prompt + answer + 64) // BLOCK_SIZE), swap_space=0,
        max_model_len=256 if dry else MODEL_LEN, cuda_graphs=graphs and not dry, overlap=overlap,
        max_num_seqs=rows,
    )  # fmt: skip
    with mock.patch.object(core, "load_model", return_value=loaded):
        return Engine(config, files)
