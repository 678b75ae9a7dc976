"""Bad and exploding grammars are refused, each alone; good ones are compiled once."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import llguidance
import pytest

from engine.core import Engine
from engine.errors import ROW_ERRORS, RequestError
from engine.grammar import compiler as compiling
from engine.grammar import matcher
from engine.grammar.compiler import CompiledGrammar, GrammarCompiler
from engine.grammar.refusal import GrammarRefusal
from engine.grammar.spec import MAX_GRAMMAR_BYTES, GrammarKind, GrammarSpec
from engine.grammar.trial_process import TrialProcess
from engine.grammar.vocabulary import Vocabulary
from engine.request import FinishReason
from tests.support.grammars import answers, ask, choice, ebnf, engine_of, regex, schema
from tests.support.tiny_model import byte_tokenizer

PATIENCE = 300.0


def vocabulary() -> Vocabulary:
    return Vocabulary.of(byte_tokenizer().backend_tokenizer, 260)


def outcome(compiler: GrammarCompiler, spec: GrammarSpec) -> CompiledGrammar | GrammarRefusal:
    compiler.submit(spec)
    ((found, result),) = compiler.finished(PATIENCE)
    assert found == spec
    return result


@pytest.fixture
def trial() -> TrialProcess:
    made = TrialProcess()
    yield made
    made.close()


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return engine_of(folder)


def nested(levels: int) -> object:
    made: object = {"type": "boolean"}
    for _ in range(levels):
        made = {"type": "array", "items": made, "maxItems": 2}
    return made


INVALID: dict[str, GrammarSpec] = {
    "no JSON": GrammarSpec(GrammarKind.JSON_SCHEMA, "{", "response_format"),
    "no schema": schema(7),
    "unknown type": schema({"type": "colour"}),
    "unknown keyword": schema({"type": "object", "unevaluatedProperties": False}),
    "false": schema(False),
    "remote reference": schema({"$ref": "https://example.com/schema.json"}),
    "missing reference": schema({"$ref": "#/$defs/nowhere"}),
    "open parenthesis": regex("(a"),
    "look ahead": regex("(?=a)b"),
    "back reference": regex(r"(a)\1"),
    "no rule": ebnf("root ::= nowhere"),
    "no start": ebnf("a: b"),
    "not a grammar": ebnf("hello there"),
    "no strings": GrammarSpec(GrammarKind.CHOICE, "[1]", "structured_outputs.choice"),
    "no choice": GrammarSpec(GrammarKind.CHOICE, "[]", "structured_outputs.choice"),
}
EXPLODING: dict[str, GrammarSpec] = {
    "repeats of repeats": regex("(a{1,1000}){1,1000}"),
    "repeats of repeats of repeats": regex("((a{1,100}){1,100}){1,100}b"),
    "many states": regex("([a-z]*a[a-z]{30}|[a-z]*b[a-z]{40}|[a-z]*e[a-z]{50}){1,9}9"),
    "many alternatives of a rule": ebnf(
        "root ::= " + " | ".join(f'"a{i}" root' for i in range(3000)) + ' | "b"'
    ),
    "a huge repeat": regex("a{1,2000000000}"),
    "deep parentheses": regex("(" * 100_000 + "a" + ")" * 100_000),
    "deep rules": ebnf("start: " + "(" * 200_000 + '"a"' + ")" * 200_000),
    "deep arrays": schema(nested(300)),
    "many joined alternatives": schema(
        {"allOf": [{"anyOf": [{"type": "string"}, {"type": "integer", "minimum": i}]} for i in
                   range(40)]}
    ),
    "long strings": schema({"type": "string", "minLength": 10_000_000}),
    "many properties": schema(
        {"type": "object", "properties": {f"p{i}": {"type": "boolean"} for i in range(20_000)}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_a_bad_grammar_is_refused_with_its_field(trial: TrialProcess, name: str) -> None:
    found = outcome(GrammarCompiler(vocabulary, trial), INVALID[name])
    assert isinstance(found, GrammarRefusal)
    assert found.code == "invalid_grammar"
    error = found.of(INVALID[name])
    assert error.field == INVALID[name].field
    assert str(error).startswith(f"{error.field} cannot be used: ")
    assert len(str(error)) < 700


@pytest.mark.parametrize("name", EXPLODING)
def test_an_exploding_grammar_harms_nobody(engine: Engine, name: str) -> None:
    """It is refused, or it turns out to be none; the row beside it is answered."""
    bad, good = ask("bad", EXPLODING[name], max_tokens=30), ask("good", regex("[ab]{5}"))
    refused, answered = answers(engine, [bad, good])
    assert answered.finish_reason is FinishReason.STOP
    if refused.error_code is not None:
        assert refused.error_code in ("invalid_grammar", "grammar_too_large")
        assert refused.finish_reason is FinishReason.ERROR
        assert refused.error_field in (EXPLODING[name].field, None)  # None in the midst of it
    assert not engine.has_unfinished


def test_a_grammar_of_ten_megabytes_is_refused_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        schema({"enum": ["x" * 1000 + str(i) for i in range(10_000)]})
    assert caught.value.code == "grammar_too_large"
    assert caught.value.field == "response_format"
    assert GrammarSpec(GrammarKind.REGEX, "a" * MAX_GRAMMAR_BYTES)


def test_the_trial_ignores_the_signals_of_its_group(trial: TrialProcess) -> None:
    """A service manager sends its SIGTERM to all processes, of which this one compiles a row's."""
    assert isinstance(trial.run(regex("ab")), str)
    assert trial._process is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        trial._process.send_signal(number)
    assert isinstance(trial.run(regex("cd")), str)


def hanging(seconds: float) -> TrialProcess:
    """A process that never answers, and does no work."""
    return TrialProcess((sys.executable, "-c", "import time; time.sleep(1000)"), seconds)


def test_a_compilation_that_never_returns_is_given_up() -> None:
    trial = hanging(0.2)
    compiler = GrammarCompiler(vocabulary, trial)
    for text in ("a", "b"):
        found = outcome(compiler, regex(text))
        assert isinstance(found, GrammarRefusal)
        assert found.code == "grammar_too_large"
        assert "more than 0.2 s" in found.reason
        assert trial._process is None


SPINNING = """
import resource, sys
from engine.grammar import trial
def attempt(kind, text):
    while text == "spin":
        pass
    if text == "eat":
        bytearray(1 << 40)
    if text == "crash":
        import ctypes
        ctypes.string_at(1)
    return {"grammar": "start: /" + text + "/"}
trial.attempt = attempt
trial.COMPILE_CPU_SECONDS = 1
trial.main(int(sys.argv[1]), int(sys.argv[2]))
"""


def test_time_memory_and_crashes_are_bounded_by_the_system() -> None:
    trial = TrialProcess((sys.executable, "-c", SPINNING), PATIENCE)
    try:
        for text, reason in (("spin", "to compile"), ("eat", "memory"), ("crash", "memory")):
            found = trial.run(regex(text))
            assert isinstance(found, GrammarRefusal)
            assert found.code == "grammar_too_large"
            assert reason in found.reason
            assert trial.run(regex("ab")) == "start: /ab/"
    finally:
        trial.close()


def test_others_go_on_while_a_grammar_is_compiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = threading.Event()
    compile_ = GrammarCompiler._compile

    def slowly(self: GrammarCompiler, spec: GrammarSpec) -> object:
        assert allowed.wait(PATIENCE)
        return compile_(self, spec)

    monkeypatch.setattr(GrammarCompiler, "_compile", slowly)
    engine = engine_of(folder)
    engine.add(ask("bound", regex("[ab]{5}")))
    assert engine.step() == []  # nothing to compute yet, and no busy waiting
    engine.add(ask("free", None, max_tokens=5, ignore_eos=True))
    first: list[str] = []
    while not first:
        first = [o.request_id for o in engine.step()]
        assert engine.stats.waiting == 1
    assert first == ["free"]
    allowed.set()
    (output,) = run_to_the_end(engine)
    assert output.finish_reason is FinishReason.STOP


def run_to_the_end(engine: Engine) -> list:
    outputs = []
    while engine.has_unfinished:
        outputs += engine.step()
    return outputs


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    compiled: list[str] = []
    run = TrialProcess.run

    def count(self: TrialProcess, spec: GrammarSpec) -> object:
        compiled.append(spec.text)
        return run(self, spec)

    monkeypatch.setattr(TrialProcess, "run", count)
    return compiled


def test_a_grammar_is_compiled_once_for_all_rows_and_samples(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = counted(monkeypatch)
    same = [regex("[ab]{3}x") for _ in range(20)]
    outputs = answers(engine, [ask(str(i), spec, seed=i) for i, spec in enumerate(same)])
    outputs += answers(engine, [ask("later", regex("[ab]{3}x"))])
    assert len({o.text for o in outputs}) > 3
    assert compiled == ["[ab]{3}x"]


def test_a_bad_grammar_is_tried_once_and_each_row_told_by_its_own_name(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = counted(monkeypatch)
    fields = [f"row{i}" for i in range(5)]
    asked = [ask(f, GrammarSpec(GrammarKind.REGEX, "(unclosed", f)) for f in fields]
    assert [o.error_field for o in answers(engine, asked)] == fields
    assert compiled == ["(unclosed"]


def test_the_cache_is_bounded_by_number_and_by_bytes(
    trial: TrialProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MAX_CACHED", 3)
    monkeypatch.setattr(compiling, "MAX_CACHED_BYTES", 100)
    compiled = counted(monkeypatch)
    compiler = GrammarCompiler(vocabulary, trial)
    specs = [choice(letter) for letter in "abcd"]
    for spec in (*specs, specs[3], specs[0]):  # the first one had to go
        outcome(compiler, spec)
    assert compiled == [s.text for s in (*specs, specs[0])]
    outcome(compiler, regex("x" * 99))
    outcome(compiler, specs[0])  # one long text leaves room for nothing else
    assert compiled[-2:] == ["x" * 99, specs[0].text]


def test_the_thread_and_the_process_leave_when_there_is_nothing_to_do(
    trial: TrialProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "IDLE_SECONDS", 0.05)
    compiler = GrammarCompiler(vocabulary, trial)
    for text in ("a", "b"):
        assert isinstance(outcome(compiler, regex(text)), CompiledGrammar)
        until(lambda: compiler._thread is None)
        assert trial._process is None


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_trial_ends_with_the_engine(trial: TrialProcess) -> None:
    trial.run(regex("a"))
    process = trial._process
    assert process is not None
    trial._writer.close()
    assert process.wait(PATIENCE) == 0


AMBIGUOUS = ebnf('root ::= root root root | root root | "a" | "b"')


def test_a_token_that_takes_too_many_items_is_one_rows_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = llguidance.LLParserLimits(max_items_in_row=20)
    monkeypatch.setattr(compiling, "parser_limits", lambda: tight)
    engine = engine_of(folder)
    asked = [ask("bad", AMBIGUOUS, ignore_eos=True), ask("good", regex("[ab]{90}"))]
    bad, good = answers(engine, asked)
    assert (bad.finish_reason, bad.error_code) == (FinishReason.ERROR, "grammar_too_large")
    assert bad.error_message == ROW_ERRORS["grammar_too_large"]
    assert good.finish_reason is FinishReason.STOP
    assert not engine.has_unfinished


def test_a_token_that_takes_too_long_is_one_rows_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matcher, "TOKEN_CPU_SECONDS", 0.0)
    bad, good = answers(engine, [ask("bad", AMBIGUOUS), ask("good", None, max_tokens=4)])
    assert (bad.finish_reason, bad.error_code) == (FinishReason.ERROR, "grammar_too_large")
    assert bad.token_ids == ()
    assert good.error_code is None
