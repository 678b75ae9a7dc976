"""The two Parquet schemas: the normalized copy of the input, and the output.

Columns of the user's input that pass through to the output are *carried*. In the normalized
copy their names bear the prefix `carried:` and then the name that they will have in the
output, so that no name of the user can meet one of ours.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from jobs.kinds import JobKind

CARRIED_PREFIX = "carried:"
EXTRA_KEYS = "input"  # the JSON column that holds the extra keys of JSONL rows

NORMALIZED = pa.schema(
    [
        pa.field("row_index", pa.int64(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("custom_id", pa.string()),
        pa.field("prompt", pa.string()),  # exactly one of prompt and messages is set
        # JSON: [{"role": …, "content": …}, …]; further keys, such as tool_calls, come after these
        pa.field("messages", pa.string()),
        # JSON: what the chat template gets beside the messages, or null:
        # {"tools": […], "template_kwargs": {…}}
        pa.field("chat", pa.string()),
        pa.field("params", pa.string()),  # JSON: the row's own sampling parameters, or null
        # JSON: the texts that a score job scores after the prompt, or null
        pa.field("continuations", pa.string()),
    ]
)

ERROR = pa.struct(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("line", pa.int64()),
        pa.field("field", pa.string()),
    ]
)

LOGPROBS = pa.list_(
    pa.struct(
        [
            pa.field("token_id", pa.int32(), nullable=False),
            pa.field("token", pa.string(), nullable=False),
            pa.field("bytes", pa.binary(), nullable=False),
            pa.field("logprob", pa.float32(), nullable=False),
            pa.field(
                "top",
                pa.list_(
                    pa.struct(
                        [
                            pa.field("token_id", pa.int32(), nullable=False),
                            pa.field("token", pa.string(), nullable=False),
                            pa.field("logprob", pa.float32(), nullable=False),
                        ]
                    )
                ),
                nullable=False,
            ),
        ]
    )
)

CHOICES = pa.list_(
    pa.struct(
        [
            pa.field("text", pa.string(), nullable=False),
            pa.field("finish_reason", pa.string(), nullable=False),
            pa.field("completion_tokens", pa.int64(), nullable=False),
            pa.field("logprobs", LOGPROBS),
        ]
    )
)

OUTPUT = pa.schema(
    [
        pa.field("row_index", pa.int64(), nullable=False),
        pa.field("custom_id", pa.string()),
        pa.field("text", pa.string()),
        pa.field("finish_reason", pa.string()),
        pa.field("prompt_tokens", pa.int64(), nullable=False),
        pa.field("cached_tokens", pa.int64(), nullable=False),
        pa.field("completion_tokens", pa.int64(), nullable=False),
        pa.field("error", ERROR),
        pa.field("model", pa.string(), nullable=False),
        pa.field("seed", pa.int64()),
        pa.field("endpoint", pa.string()),
        pa.field("choices", CHOICES),
        pa.field("logprobs", LOGPROBS),
        # Of the tokens of the prompt from the second on.
        pa.field("prompt_logprobs", LOGPROBS),
    ]
)

SCORES = pa.list_(
    pa.struct(
        [
            pa.field("logprob", pa.float64(), nullable=False),
            pa.field("tokens", pa.int32(), nullable=False),
            pa.field("is_greedy", pa.bool_(), nullable=False),
            pa.field("token_logprobs", pa.list_(pa.float32()), nullable=False),
        ]
    )
)
EMBEDDING = pa.list_(pa.float32())

# Columns that only jobs of one kind have.
_OF_KIND: dict[JobKind, tuple[pa.Field, ...]] = {
    JobKind.GENERATE: (),
    JobKind.SCORE: (
        pa.field("scores", SCORES),
        pa.field("best", pa.int32()),
        pa.field("best_normalized", pa.int32()),
    ),
    JobKind.EMBED: (pa.field("embedding", EMBEDDING),),
}
# In the metadata of a normalized copy: the kind of its job, unless that generates.
_KIND = b"pagemill.kind"

# What a row asked for, in the words of OpenAI's batch files.
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
EMBEDDINGS = "/v1/embeddings"

# What a worker spools: the outcome of a row. Carried columns come from the normalized copy.
RESULT = pa.schema(
    [
        *(field for field in OUTPUT if field.name not in ("custom_id", "model", "endpoint")),
        *(field for fields in _OF_KIND.values() for field in fields),
    ]
)


def own_fields(kind: JobKind) -> tuple[pa.Field, ...]:
    """The columns of the output that are ours, in a job of that kind."""
    return (*OUTPUT, *_OF_KIND[kind])


def normalized_schema(carried: Iterable[pa.Field], kind: JobKind = JobKind.GENERATE) -> pa.Schema:
    """The schema of a job's normalized copy; it remembers the kind of the job."""
    metadata = None if kind is JobKind.GENERATE else {_KIND: kind.value.encode()}
    return pa.schema([*NORMALIZED, *carried], metadata)


def kind_of_copy(schema: pa.Schema) -> JobKind:
    """The kind of the job whose normalized copy has this schema."""
    kind = (schema.metadata or {}).get(_KIND)
    return JobKind.GENERATE if kind is None else JobKind(kind.decode())


def output_name(column: str, kind: JobKind = JobKind.GENERATE) -> str:
    """The name that a carried column has in the output: collisions become `input.<name>`."""
    ours = {field.name for field in own_fields(kind)}
    return f"input.{column}" if column in ours else column


def free_name(column: str, taken: set[str]) -> str:
    """Another name for a column, `input.<name>` if nothing bears it; it is taken from then on."""
    name = f"input.{column}"
    while name in taken:
        name = f"input.{name}"
    taken.add(name)
    return name


def carried_fields(schema: pa.Schema) -> list[pa.Field]:
    """The carried columns of a normalized schema, under their output names."""
    return [
        field.with_name(field.name.removeprefix(CARRIED_PREFIX))
        for field in schema
        if field.name.startswith(CARRIED_PREFIX)
    ]


def output_schema(carried: Iterable[pa.Field], kind: JobKind = JobKind.GENERATE) -> pa.Schema:
    """The output schema of a job: our columns, then the carried ones."""
    return pa.schema([*own_fields(kind), *carried])
