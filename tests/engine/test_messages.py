"""Every message comes out of the pipe as it went in, and nothing else comes out."""

import json
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.grammar.spec import GrammarKind, GrammarSpec
from engine.messages import (
    AbortRequests,
    AddRequests,
    Crashed,
    EngineStats,
    Loading,
    Ready,
    Refused,
    Report,
    Start,
    TokenCounts,
    decode,
    encode,
)
from engine.request import (
    BeamOutput,
    FinishReason,
    Request,
    RequestOutput,
    ScoreOutput,
    TokenLogprob,
    TopLogprob,
)
from engine.sampling_params import MAX_LOGPROBS, SamplingParams
from engine.task import Embed, Pooling, Score

pytestmark = pytest.mark.quick

ids = st.text(min_size=1, max_size=20)
tokens = st.lists(st.integers(0, 200_000), min_size=1, max_size=50).map(tuple)
counts = st.integers(0, 10**9)
params = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 10**6),
    temperature=st.floats(0, 5),
    top_k=st.integers(0, 1000),
    top_p=st.floats(0.01, 1),
    seed=st.integers(0, 2**63 - 1),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.01, 100),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    logit_bias=st.lists(st.tuples(counts, st.floats(-100, 100)), max_size=3).map(tuple),
    allowed_token_ids=st.none() | st.lists(counts, min_size=1, max_size=3).map(tuple),
    bad_words=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
    bad_words_ids=st.lists(st.lists(counts, min_size=1, max_size=3).map(tuple), max_size=3).map(
        tuple
    ),
    min_tokens=st.integers(0, 1),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
    include_stop_str_in_output=st.booleans(),
    stop_token_ids=st.lists(counts, max_size=3).map(tuple),
    ignore_eos=st.booleans(),
    logprobs=st.none() | st.integers(0, MAX_LOGPROBS),
    prompt_logprobs=st.none() | st.integers(0, MAX_LOGPROBS),
    grammar=st.none()
    | st.builds(
        GrammarSpec, st.sampled_from(GrammarKind), st.text(max_size=5), st.text(max_size=5)
    ),
)
tasks = st.builds(Score, counts) | st.builds(Embed, st.sampled_from(Pooling), st.booleans())
floats = st.lists(st.floats(allow_nan=False, width=32), max_size=9).map(lambda v: array("f", v))
searches = st.builds(
    SamplingParams,
    num_beams=st.just(4),
    num_return_sequences=st.integers(1, 4),
    length_penalty=st.floats(-10, 10),
    early_stopping=st.sampled_from([True, False, "never"]),
)
values = st.floats(max_value=0, allow_nan=False, width=32)
logprobs = st.builds(
    TokenLogprob,
    token_id=counts,
    token=st.text(max_size=5),
    bytes=st.binary(max_size=5),
    logprob=values,
    top=st.lists(st.builds(TopLogprob, counts, st.text(max_size=5), values), max_size=3).map(tuple),
)
outputs = st.builds(
    RequestOutput,
    request_id=ids,
    token_ids=tokens,
    text=st.text(max_size=30),
    finish_reason=st.sampled_from(FinishReason),
    prompt_tokens=counts,
    cached_tokens=counts,
    completion_tokens=counts,
    error_code=st.none() | st.text(max_size=5),
    error_message=st.none() | st.text(max_size=5),
    error_field=st.none() | st.text(max_size=5),
    logprobs=st.none() | st.lists(logprobs, max_size=3).map(tuple),
    prompt_logprobs=st.none() | st.lists(logprobs, max_size=3).map(tuple),
    score=st.none() | st.builds(ScoreOutput, st.floats(allow_nan=False), floats, st.booleans()),
    embedding=st.none() | floats,
    beams=st.lists(
        st.builds(BeamOutput, tokens, st.text(max_size=9), st.sampled_from(FinishReason), values),
        max_size=3,
    ).map(tuple),
)
running = st.none() | st.dictionaries(ids, st.builds(TokenCounts, counts, counts, counts))
spent = st.dictionaries(ids, st.floats(0, 1e9))
stats = st.none() | st.builds(
    EngineStats,
    running=counts,
    blocks_total=counts,
    step_seconds=st.floats(0, 1e9),
    step_buckets=st.lists(counts, max_size=13).map(tuple),
)
AT_REST = SamplingParams()


def requests(params, tasks):
    return st.builds(
        Request,
        ids,
        tokens,
        params,
        st.integers(-9, 9),
        st.integers(0, 127),
        st.none() | st.floats(0, 1e9),
        tasks,
        st.none() | ids,
    )


messages = st.one_of(
    st.builds(Start, st.just({"model": "m", "block_size": 16})),
    st.builds(
        AddRequests,
        st.lists(requests(params | searches, st.none()) | requests(st.just(AT_REST), tasks)).map(
            tuple
        ),
    ),
    st.builds(AbortRequests, st.lists(ids).map(tuple)),
    st.builds(Ready, ids, ids, ids, ids, ids, counts, counts, counts, st.floats(0, 100)),
    st.builds(Refused, st.text()),
    st.builds(Loading, st.text()),
    st.builds(Crashed, st.text()),
    st.builds(Report, st.lists(outputs, max_size=3).map(tuple), running, stats, spent),
)


@given(messages)
def test_a_message_survives_the_pipe(message):
    assert decode(encode(message)) == message


def test_samples_of_a_prompt_share_it_on_both_sides_of_the_pipe():
    prompt = tuple(range(1000))
    samples = tuple(Request(f"r{i}", prompt, sample_index=i) for i in range(8))
    other = Request("other", (7,))
    message = AddRequests((*samples, other))

    data = encode(message)

    assert decode(data) == message
    assert len(data) < 2 * len(encode(AddRequests(samples[:1])))
    assert len({id(r.token_ids) for r in decode(data).requests}) == 2


def test_every_byte_survives_the_pipe():
    pieces = (TokenLogprob(1, "\ufffd", bytes(range(256)), -0.5, (TopLogprob(1, "x", -0.5),)),)
    output = RequestOutput("r", (1,), "", FinishReason.STOP, 1, 0, 1, logprobs=pieces)
    (found,) = decode(encode(Report((output,)))).outputs
    assert found.logprobs[0].bytes == bytes(range(256))


def test_a_message_is_one_line_of_ascii_json():
    output = RequestOutput("é\n", (1,), "漢\u2028", FinishReason.STOP, 1, 0, 1)
    assert b"\n" not in encode(Report((output,)))
    assert encode(Report((output,))).isascii()


DAMAGED = [
    b'{"type":"Report"}',
    b'{"type":"Report","outputs":[{}],"running":null,"stats":null}',
    b'{"type":"Report","outputs":[],"running":{"r":7},"stats":null}',
    b'{"type":"AbortRequests","request_ids":7}',
    b'{"type":"AddRequests","prompts":[],"requests":[{}]}',
    b'{"type":"AddRequests","prompts":7,"requests":[]}',
    b'{"type":"Ready","more":1}',
    b'{"type":[]}',
    pytest.param(b"[" * 100_000, id="deep"),
]


@pytest.mark.parametrize(
    "data", [b"", b"[]x", b'{"type":"Nothing"}', b"{}", b"[]", b"7", b"\xff{", *DAMAGED]
)
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match=r"not a message|Expecting|Extra data|decode"):
        decode(data)


def test_a_request_that_cannot_be_read_is_its_own_error():
    message = AddRequests((Request("good", (1, 2)), Request("odd", (3,)), Request("out", (4,))))
    body = json.loads(encode(message))
    body["requests"][1]["params"]["no_such_rule"] = 1
    body["requests"][2]["params"]["max_tokens"] = -1
    found = decode(json.dumps(body).encode())
    assert found.requests == message.requests[:1]
    odd, out = found.unreadable
    assert (odd.request_id, odd.error_code) == ("odd", "engine_error")
    assert "no_such_rule" in odd.error_message
    assert (out.request_id, out.error_field) == ("out", "max_tokens")
