"""Options that several commands share, as dataclasses that become parameters of a command."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import typer

from jobs.cli import completion
from jobs.cli.row_options import RowOptions
from jobs.kinds import JobKind

JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The job's id; its start is enough.", autocompletion=completion.job_ids
    ),
]
Model = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="A Hugging Face folder, a hub id, a .gguf file, or smollm2-135m.",
        show_default=False,
        autocompletion=completion.models,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON; its shape is in docs/cli.md.")]


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(RowOptions):
    """What is asked, of which rows."""

    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="JSONL or Parquet (.gz and .zst too), a folder of Parquet, a URI, or - for stdin.",
            show_default=False,
        ),
    ]
    model: Model
    kind: Annotated[
        JobKind,
        typer.Option(help="Answer the rows, score given continuations, or embed texts."),
    ] = JobKind.GENERATE
    pooling: Annotated[
        str | None,
        typer.Option(
            help="Of embeddings: last (token, as if not given) or mean.", show_default=False
        ),
    ] = None
    no_normalize: Annotated[
        bool, typer.Option("--no-normalize", help="Leave embeddings at their own length.")
    ] = False
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None
    seed: Annotated[
        int | None, typer.Option(help="Seed of the job; drawn at random if not given.")
    ] = None
    priority: Annotated[int, typer.Option(help="Jobs with a higher one go first.")] = 0
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="When to give up: 90m, 8h, 2d, or a time like 2030-01-31T08:00+01:00.",
        ),
    ] = None
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Submitting again with the same key gives the same job."),
    ] = None
    notify: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Where the end of the job is told, by a POST; repeatable, up to 5.",
            show_default=False,
        ),
    ] = None
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse the file if one of its rows is bad.")
    ] = False
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What rows of OpenAI batch files may call the model; repeatable.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a worker serves its model; the worker checks them."""

    dtype: Annotated[
        str | None, typer.Option(help="auto, float32, bfloat16 or float16.", show_default=False)
    ] = None
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None
    block_size: Annotated[int | None, typer.Option(help="Tokens of a KV block: 8, 16, 32.")] = None
    num_blocks: Annotated[
        int | None, typer.Option(help="KV blocks; measured from free memory if not given.")
    ] = None
    kv_cache_dtype: Annotated[
        str | None,
        typer.Option(
            help="Of the KV cache: auto, float32, float16, bfloat16; on a GPU fp8_e4m3, fp8_e5m2, "
            "int8 too."
        ),
    ] = None
    max_model_len: Annotated[
        int | None, typer.Option(help="Longest sequence, prompt and answer together.")
    ] = None
    max_num_seqs: Annotated[int | None, typer.Option(help="Sequences that run at once.")] = None
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help="Token budget of an engine step.")
    ] = None
    no_prefix_cache: Annotated[
        bool, typer.Option("--no-prefix-cache", help="Compute shared prefixes again.")
    ] = False
    threads: Annotated[int | None, typer.Option(help="Threads of the engine on a CPU.")] = None
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Answer a row the same, to the bit, whatever is computed with it; on a CPU.",
        ),
    ] = False
    overlap: Annotated[
        bool | None,
        typer.Option(
            "--overlap/--no-overlap",
            help="Plan a step while the device computes the one before; on a GPU unless told not.",
            show_default=False,
        ),
    ] = None
    cuda_graphs: Annotated[
        bool | None,
        typer.Option(
            "--cuda-graphs/--no-cuda-graphs",
            help="Launch a decode step of a GPU as one captured graph; unless told not.",
            show_default=False,
        ),
    ] = None
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="Share of the GPU's memory to use.")
    ] = None
    swap_space: Annotated[
        float | None,
        typer.Option(help="GiB of host memory for requests that must make room; 0 for none."),
    ] = None
    watermark: Annotated[
        float | None, typer.Option(help="Share of the KV blocks kept free when a request begins.")
    ] = None

    def arguments(self) -> list[str]:
        """The options that were given, as arguments of the worker."""
        given: list[str] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None or value is field.default is False:
                continue
            name = field.name.replace("_", "-")
            given.append(f"--no-{name}" if value is False else f"--{name}")
            if not isinstance(value, bool):
                given.append(str(value))
        return given


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function that takes dataclasses: each field becomes a parameter."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            groups[name] = kind
            parameters.extend(_parameters_of(kind))
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))

    def command(**values: Any) -> None:
        made = {
            name: kind(**{f.name: values.pop(f.name) for f in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        function(**made, **values)

    command.__name__ = function.__name__
    command.__doc__ = function.__doc__
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    vars(command)["__signature__"] = inspect.Signature(parameters)
    return command


def _parameters_of(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    # In the help, a class's own options come before those that it inherits.
    depth = {
        name: level
        for level, owner in reversed([*enumerate(kind.__mro__)])
        for name in vars(owner).get("__annotations__", ())
    }
    fields = sorted(dataclasses.fields(kind), key=lambda field: depth[field.name])
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty
            if field.default is dataclasses.MISSING
            else field.default,
            annotation=hints[field.name],
        )
        for field in fields
    ]
