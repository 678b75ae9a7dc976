"""Tiny random models of several kinds of tokenizers, and grammars with what they allow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.core import Engine
from engine.grammar.spec import GrammarKind, GrammarSpec
from engine.request import Request, RequestOutput
from engine.sampling_params import SamplingParams
from tests.support.tiny_model import build_tiny_model

PROMPT = tuple(b"Answer in the form that was asked for: ")
PIECES = ["▁", "▁a", "▁▁", "é", "漢", '":', '",', "true", "{", '{"', "}", '▁"', "yes", "no", "12"]


def sentencepiece_tokenizer() -> Any:
    """As Llama 2 has it: pieces with marks for spaces, and a token for each byte."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    vocab = {"<s>": 256, "</s>": 257} | {f"<0x{i:02X}>": i for i in range(256)}
    vocab |= {piece: 258 + i for i, piece in enumerate(PIECES)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )  # fmt: skip
    made.add_special_tokens(["<s>", "</s>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>",
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def sentencepiece_model(folder: Path) -> Path:
    tokenizer = sentencepiece_tokenizer()
    # A model may have more rows than its tokenizer has tokens.
    build_tiny_model(
        folder, vocab_size=len(tokenizer) + 5, bos_token_id=256, eos_token_id=257, seed=1
    )
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] = 257
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def engine_of(folder: Path, **settings: Any) -> Engine:
    return Engine(
        EngineConfig(
            **{
                "model": str(folder), "device": "cpu", "dtype": "float32", "num_blocks": 512,
                "threads": 1, "check_invariants": True, **settings,
            }
        )
    )  # fmt: skip


def schema(value: object, field: str = "response_format") -> GrammarSpec:
    return GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(value), field)


def regex(text: str) -> GrammarSpec:
    return GrammarSpec(GrammarKind.REGEX, text, "structured_outputs.regex")


def choice(*texts: str) -> GrammarSpec:
    return GrammarSpec(GrammarKind.CHOICE, json.dumps(texts), "structured_outputs.choice")


def ebnf(text: str) -> GrammarSpec:
    return GrammarSpec(GrammarKind.EBNF, text, "structured_outputs.grammar")


def ask(
    request_id: str, grammar: GrammarSpec | None, prompt: Sequence[int] = PROMPT, **params: Any
) -> Request:
    rules = {"max_tokens": 400, "temperature": 1.0, **params}
    return Request(request_id, tuple(prompt), SamplingParams(**rules, grammar=grammar))


def answers(engine: Engine, requests: Sequence[Request]) -> list[RequestOutput]:
    found = {output.request_id: output for output in engine.generate(requests)}
    return [found[request.request_id] for request in requests]
