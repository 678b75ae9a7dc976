"""The inference engine: token ids in, tokens and text out.

    from engine import Engine, EngineConfig, Request, SamplingParams

    engine = Engine(EngineConfig(model="smollm2-135m"))
    prompt = tuple(engine.tokenizer.encode("The capital of France is").ids)
    for output in engine.generate([Request("1", prompt, SamplingParams(max_tokens=16))]):
        print(output.text)

docs/python.md tells of all names. Importing this package loads no torch: a name is looked up where
it is first used, and the worker process, which only sends messages, never uses `Engine`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.core import Engine
    from engine.errors import (
        BrokenModel,
        ConfigError,
        EngineError,
        ModelError,
        ModelNotFound,
        RequestError,
        UnsupportedModel,
    )
    from engine.grammar.spec import GrammarSpec
    from engine.request import (
        BeamOutput,
        FinishReason,
        Request,
        RequestOutput,
        ScoreOutput,
        TokenLogprob,
        TopLogprob,
    )
    from engine.sampling_params import SamplingParams
    from engine.task import Embed, Score

_HOMES = {
    "engine.config": ("EngineConfig",),
    "engine.core": ("Engine",),
    "engine.errors": (
        "BrokenModel", "ConfigError", "EngineError", "ModelError", "ModelNotFound",
        "RequestError", "UnsupportedModel",
    ),
    "engine.grammar.spec": ("GrammarSpec",),
    "engine.request": (
        "BeamOutput", "FinishReason", "Request", "RequestOutput", "ScoreOutput", "TokenLogprob",
        "TopLogprob",
    ),
    "engine.sampling_params": ("SamplingParams",),
    "engine.task": ("Embed", "Score"),
}  # fmt: skip

__all__ = [  # noqa: RUF022 (the first are those that most programs need)
    "Engine", "EngineConfig", "Request", "RequestOutput", "SamplingParams", "FinishReason",
    "GrammarSpec", "Score", "Embed", "ScoreOutput", "BeamOutput", "TokenLogprob", "TopLogprob",
    "EngineError", "BrokenModel", "ConfigError", "ModelError", "ModelNotFound",
    "RequestError", "UnsupportedModel",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        for module, names in _HOMES.items():
            if name in names:
                from importlib import import_module

                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module 'engine' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
