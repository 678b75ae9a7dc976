"""The two Parquet schemas: the normalized copy of the input, and the output.

Columns of the user's input that pass through to the output are *carried*. In the normalized
copy their names bear the prefix `carried:` and then the name that they will have in the
output, so that no name of the user can meet one of ours.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

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
    ]
)

# What a row asked for, in the words of OpenAI's batch files.
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"

# What a worker spools: the outcome of a row. Carried columns come from the normalized copy.
RESULT = pa.schema(
    [field for field in OUTPUT if field.name not in ("custom_id", "model", "endpoint")]
)


def output_name(column: str) -> str:
    """The name that a carried column has in the output: collisions become `input.<name>`."""
    return f"input.{column}" if column in OUTPUT.names else column


def carried_fields(schema: pa.Schema) -> list[pa.Field]:
    """The carried columns of a normalized schema, under their output names."""
    return [
        field.with_name(field.name.removeprefix(CARRIED_PREFIX))
        for field in schema
        if field.name.startswith(CARRIED_PREFIX)
    ]


def output_schema(carried: Iterable[pa.Field]) -> pa.Schema:
    """The output schema of a job: our columns, then the carried ones."""
    return pa.schema([*OUTPUT, *carried])
