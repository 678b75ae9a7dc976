"""The requests of an engine that have a grammar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.detokenizer import special_tokens
from engine.errors import RequestError
from engine.grammar.matcher import EndTokens, Matcher
from engine.grammar.refusal import GrammarRefusal
from engine.request import Request
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from engine.grammar.compiler import CompiledGrammar, GrammarCompiler
    from engine.grammar.spec import GrammarSpec


class GrammarRequests:
    """Holds requests until their grammars are compiled, and then knows their matchers.

    The library is loaded when the first one comes.

    Args:
        tokenizer: the model's.
        vocab_size: of the model.
        eos_token_ids: what ends a text of the model.

    Attributes:
        matchers: of the requests whose grammars are compiled, by request id.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: frozenset[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos = frozenset(t for t in eos_token_ids if t < vocab_size)
        self._ends: dict[frozenset[int], EndTokens] = {}
        self._compiler: GrammarCompiler | None = None
        self._held: dict[GrammarSpec, dict[str, Request]] = {}
        self._spec_of: dict[str, GrammarSpec] = {}
        self.matchers: dict[str, Matcher] = {}

    @property
    def num_held(self) -> int:
        """Requests whose grammars are being compiled."""
        return len(self._spec_of) - len(self.matchers)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._spec_of

    def hold(self, request: Request) -> None:
        """Keep a request until its grammar is compiled.

        Args:
            request: none of the same id is here.
        """
        spec = request.params.grammar
        assert spec is not None
        if self._compiler is None:
            self._compiler = self._make_compiler()
        self._spec_of[request.request_id] = spec
        self._held.setdefault(spec, {})[request.request_id] = request
        self._compiler.submit(spec)

    def ready(self, timeout: float = 0.0) -> Iterator[tuple[Request, RequestError | None]]:
        """The requests whose grammars have been compiled, or refused, since the last call.

        Args:
            timeout: seconds to wait for one.
        """
        if self._compiler is None or not self.num_held:
            return
        for spec, outcome in self._compiler.finished(timeout):
            for request in self._held.pop(spec, {}).values():
                if isinstance(outcome, GrammarRefusal):
                    del self._spec_of[request.request_id]
                    yield request, outcome.of(request.params.grammar or spec)
                else:
                    self.matchers[request.request_id] = self._matcher(outcome, request.params)
                    yield request, None

    def forget(self, request_id: str) -> None:
        """A request has ended; unknown ids are passed over."""
        spec = self._spec_of.pop(request_id, None)
        if spec is None:
            return
        matcher = self.matchers.pop(request_id, None)
        if matcher is None:
            held = self._held[spec]
            del held[request_id]
            if not held:
                del self._held[spec]
        elif matcher.error_code is not None and self._compiler is not None:
            # Its lexer may have grown to its limit, and is shared with those who come later.
            self._compiler.forget(spec)

    def _matcher(self, grammar: CompiledGrammar, params: SamplingParams) -> Matcher:
        special = special_tokens(self._tokenizer)
        own = frozenset(i for i in params.stop_token_ids if i in special and i < self._vocab_size)
        ignored = params.ignore_eos and not own
        token_ids = own if params.ignore_eos and own else self._eos | own
        if token_ids not in self._ends:
            self._ends[token_ids] = EndTokens(token_ids, self._vocab_size)
        return Matcher(grammar, self._ends[token_ids], last_resort=ignored)

    def _make_compiler(self) -> GrammarCompiler:
        from engine.grammar.compiler import GrammarCompiler
        from engine.grammar.vocabulary import Vocabulary

        return GrammarCompiler(lambda: Vocabulary.of(self._tokenizer, self._vocab_size))
