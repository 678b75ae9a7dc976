"""The process that runs the items of a group; what it finds goes line by line to its parent.

An error of CUDA outlives the item that made it: no later call of the process works. Then it
ends, and its parent starts another one for the items that are left.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.items import FAILED, NOT_RUN, PASSED, Item, NotHere, Surroundings

MARK = "@item "  # other lines are not the parent's business
BROKEN_DEVICE = 70  # exit code
_MUCH = 1 << 28


def run_items(items: Sequence[Item], task: Path) -> None:
    """Run what the task names.

    Args:
        items: all there are.
        task: a file of JSON; see `benchmarks.gpu.supervisor`.
    """
    asked: dict[str, Any] = json.loads(task.read_text())
    by_name = {item.name: item for item in items}
    device, known = None, dict(asked["known"])
    for name in asked["items"]:
        _say({"begun": name})
        began = time.perf_counter()
        try:
            if device is None:  # here, so that its errors are seen as those of an item
                from benchmarks.gpu.device import open_device

                device = open_device(asked["dry"])
            found = by_name[name].run(Surroundings(device, known))
            known[name] = found
            _end(name, PASSED, began, "", found)
        except NotHere as reason:
            _end(name, NOT_RUN, began, str(reason))
        except Exception as error:
            _end(name, FAILED, began, _message(error), getattr(error, "figures", {}))
            if not asked["dry"] and _is_broken():
                os._exit(BROKEN_DEVICE)
        _forget_memory()


def _end(
    name: str, status: str, began: float, message: str, figures: Mapping[str, Any] | None = None
) -> None:
    seconds = round(time.perf_counter() - began, 3)
    _say(
        {"ended": name, "status": status, "seconds": seconds, "message": message,
         "figures": dict(figures or {})}
    )  # fmt: skip


def _say(what: Mapping[str, Any]) -> None:
    sys.stdout.write(f"\n{MARK}{json.dumps(what)}\n")
    sys.stdout.flush()


def _message(error: Exception) -> str:
    places = traceback.extract_tb(error.__traceback__)
    last = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "?"
    said = " ".join(str(error).split())[:600]
    return f"{type(error).__name__} at {last}: {said}"


def _is_broken() -> bool:
    """Whether the device takes no more work."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.ones(1, device="cuda").item()
    except Exception:
        return True
    return False


def _forget_memory() -> None:
    """Give back what an item held; collecting takes a while, so only where that is much."""
    import torch

    if not torch.cuda.is_initialized():
        return
    if torch.cuda.memory_allocated() > _MUCH:
        gc.collect()
    torch.cuda.empty_cache()
