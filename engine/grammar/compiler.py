"""Compiling grammars while the engine goes on."""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import llguidance

from engine.grammar.limits import parser_limits
from engine.grammar.matcher import Bits
from engine.grammar.refusal import GrammarRefusal
from engine.grammar.spec import GrammarSpec
from engine.grammar.trial_process import TrialProcess
from engine.grammar.vocabulary import Vocabulary

log = logging.getLogger("pagemill.engine")

MAX_CACHED = 128
MAX_CACHED_BYTES = 8 << 20  # of the grammars' texts
IDLE_SECONDS = 30.0
# Twice what the trial had: what compiled there overflows no stack here.
_STACK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """A grammar and the vocabulary that it speaks of.

    Attributes:
        matcher: at the start of a text; to be copied.
        not_first: see `engine.grammar.vocabulary.Vocabulary`.
    """

    matcher: llguidance.LLMatcher
    not_first: Bits | None


Outcome = CompiledGrammar | GrammarRefusal


class GrammarCompiler:
    """Compiles grammars on a thread of its own, and keeps the ones that were used last.

    A grammar that was refused is kept too: a thousand rows with the same bad schema cost one
    attempt. One thread calls the methods.

    Args:
        vocabulary: makes the vocabulary; called once, on the thread.
        trial: where grammars are tried out first.
    """

    def __init__(
        self, vocabulary: Callable[[], Vocabulary], trial: TrialProcess | None = None
    ) -> None:
        self._make_vocabulary = vocabulary
        self._vocabulary: Vocabulary | None = None
        self._trial = TrialProcess() if trial is None else trial
        self._cache = _Cache(MAX_CACHED, MAX_CACHED_BYTES)
        self._asked: queue.Queue[GrammarSpec] = queue.Queue()
        self._done: queue.Queue[tuple[GrammarSpec, Outcome]] = queue.Queue()
        self._compiling: set[GrammarSpec] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, spec: GrammarSpec) -> None:
        """Have a grammar compiled; `finished` tells of it once, however often it was submitted."""
        if spec in self._compiling:
            return
        self._compiling.add(spec)
        known = self._cache.get(spec)
        if known is not None:
            self._done.put((spec, known))
            return
        with self._lock:
            self._asked.put(spec)
            if self._thread is None:
                self._thread = self._start()

    def finished(self, timeout: float = 0.0) -> list[tuple[GrammarSpec, Outcome]]:
        """What was finished since the last call.

        Args:
            timeout: seconds to wait for something.
        """
        found = []
        try:
            found.append(self._done.get(timeout=timeout) if timeout else self._done.get_nowait())
            while True:
                found.append(self._done.get_nowait())
        except queue.Empty:
            pass
        for spec, outcome in found:
            self._compiling.discard(spec)
            self._cache.put(spec, outcome)
        return found

    def forget(self, spec: GrammarSpec) -> None:
        """Compile a grammar anew when it is asked for again."""
        self._cache.drop(spec)

    def _start(self) -> threading.Thread:
        before = threading.stack_size(_STACK_BYTES)
        try:
            # A daemon: nobody waits for what it compiles when the engine ends.
            thread = threading.Thread(target=self._work, name="grammars", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
        return thread

    def _work(self) -> None:
        while True:
            try:
                spec = self._asked.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._asked.empty():
                        self._trial.close()
                        self._thread = None
                        return
                continue
            try:
                outcome = self._compile(spec)
            except BaseException as error:  # a panic of the library is no Exception
                log.exception("a grammar could not be compiled, and not be refused either")
                outcome = GrammarRefusal.by_library(f"{type(error).__name__}: {error}")
            self._done.put((spec, outcome))

    def _compile(self, spec: GrammarSpec) -> Outcome:
        grammar = self._trial.run(spec)
        if isinstance(grammar, GrammarRefusal):
            return grammar
        if self._vocabulary is None:
            self._vocabulary = self._make_vocabulary()
        matcher = llguidance.LLMatcher(
            self._vocabulary.tokens, grammar, log_level=0, limits=parser_limits()
        )
        if matcher.is_error():
            return GrammarRefusal.by_library(matcher.get_error())
        return CompiledGrammar(matcher, self._vocabulary.not_first)


class _Cache:
    """The grammars that were used last, bounded by their number and by the bytes of their texts."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[GrammarSpec, Outcome] = OrderedDict()
        self._bytes = 0

    def get(self, spec: GrammarSpec) -> Outcome | None:
        outcome = self._kept.get(spec)
        if outcome is not None:
            self._kept.move_to_end(spec)
        return outcome

    def put(self, spec: GrammarSpec, outcome: Outcome) -> None:
        self.drop(spec)
        self._kept[spec] = outcome
        self._bytes += len(spec.text)
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            self.drop(next(iter(self._kept)))

    def drop(self, spec: GrammarSpec) -> None:
        if self._kept.pop(spec, None) is not None:
            self._bytes -= len(spec.text)
