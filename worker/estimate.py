"""`python -P -m worker.estimate`: counts the tokens of a job that was not submitted.

A process of its own, since `jobs` has no tokenizer. It reads the normalized copy chunk by chunk,
as a worker does, and tells how far it is.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.errors import ModelNotFound
from engine.loading import ModelFiles, resolve_model
from engine.models.read_config import read_model_config
from jobs.job_folder import JobFolder
from jobs.parts import read_chunk_input
from jobs.records import ChunkLease
from worker.estimate_rows import RowTally
from worker.options import WorkerOptions
from worker.prompts import PromptEncoder
from worker.requests import COLUMNS
from worker.task_requests import prepare
from worker.telling import Refused, Tell, answer


def estimate(request: Mapping[str, Any], tell: Tell) -> None:
    """Count the rows of a job.

    Args:
        request: `arguments` (of a worker), `folder` and `root`, `input_path`, `chunks` (rows of
            each that is counted, by its ordinal), `options`, `seed`.

    Raises:
        Refused: the model is not on this machine.
        EngineError: the model, or an engine setting, cannot be served.
    """
    from engine.config import EngineConfig

    options = WorkerOptions.parse(request["arguments"])
    config = EngineConfig.from_mapping(options.engine)
    files = _files(config.model)
    encoder = PromptEncoder(str(files.path))  # before torch: it would load it
    from worker.estimate_memory import longest, measure, memory_json

    tally = RowTally(
        max_model_len=longest(config, read_model_config(files.path)),
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        shares=config.enable_prefix_caching,
    )
    sizes = measure(config, files)
    tell("begun", rows=sum(rows for _, rows in request["chunks"]))
    folder = JobFolder(Path(request["folder"]), Path(request["root"]))
    done = 0
    for lease in _leases(request, config.model):
        table = read_chunk_input(folder, lease.input_path, lease.ordinal)
        rows = table.select(COLUMNS).to_pylist()
        lines = {row["row_index"]: row["line"] for row in rows}
        for prepared in prepare(lease, rows, encoder, tally.max_model_len):
            tally.add(prepared, lines)
            done += len(prepared.rows) + len(prepared.refused)
            tell("counted", rows=done)
    tell(
        "estimate",
        **tally.as_json(),
        **memory_json(config, sizes, tally),
        model={
            "path": str(files.path),
            "revision": files.revision,
            "architecture": sizes.config.architecture,
            "max_model_len": sizes.max_model_len,
        },
    )


def _files(model: str) -> ModelFiles:
    """The model's files; none is downloaded, but a GGUF file is converted, as by a worker."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # before the hub's client is imported
    try:
        return resolve_model(model)
    except ModelNotFound as error:
        if error.__cause__ is not None and "/" in model:
            raise Refused(
                "model",
                f"{model} is not in the hub's cache on this machine; `pagemill pull {model}` "
                "brings it",
            ) from error
        raise


def _leases(request: Mapping[str, Any], model: str) -> Iterator[ChunkLease]:
    """What a worker would be given for each chunk."""
    for ordinal, rows in request["chunks"]:
        yield ChunkLease(
            chunk_id=f"estimate-{ordinal}",
            job_id="estimate",
            version=1,
            ordinal=ordinal,
            window=0,
            rows=rows,
            epoch=1,
            owner="estimate",
            model=model,
            folder=request["folder"],
            input_path=request["input_path"],
            options=request["options"],
            seed=request["seed"],
            priority=0,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    sys.exit(answer(estimate))
