"""Chat templates and tokenizing, with transformers but without torch."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from jinja2.exceptions import SecurityError

from engine.errors import RequestError
from jobs.tools import RESERVED
from worker.chat_template import ChatTemplate, compiled
from worker.errors import ModelUnavailable

_MAX_REASON = 500  # characters of what a template, or transformers, says
# A template takes more than it may: that is no refusal of what a row says.
_TOO_MUCH = (SecurityError, RecursionError, OverflowError, MemoryError)


class PromptEncoder:
    """The tokenizer of a model, and its chat template.

    Args:
        folder: local model folder.

    Raises:
        ModelUnavailable: the tokenizer cannot be loaded, or its chat template is none.
    """

    def __init__(self, folder: str) -> None:
        with _no_torch():
            from transformers import AutoTokenizer

            try:
                self._tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
                #: Most characters that one token stands for.
                self.longest_token = max(map(len, self._tokenizer.get_vocab()), default=1)
                # Some settings are only looked at here.
                begins = self.encode_prompts(["a"])[0][:1] == [self._tokenizer.bos_token_id]
            except Exception as error:  # transformers raises whatever a wrong value leads to
                raise ModelUnavailable(
                    f"the model's tokenizer cannot be loaded: {_reason(error)}; mend the tokenizer "
                    f"files (tokenizer.json, tokenizer_config.json, …) in {folder}"
                ) from error
        self._adds_bos = self._tokenizer.bos_token_id if begins else None
        template = self._tokenizer.chat_template
        _check_template(template, folder)
        self._special_tokens = dict(self._tokenizer.special_tokens_map)
        self.digest = _digest(Path(folder), template)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The messages as the model wants to read them, ready for the assistant's turn.

        Args:
            tools: functions that the model may call, as JSON schemas.
            template_kwargs: more variables for the chat template, such as `enable_thinking`
                (none of `jobs.tools.RESERVED`); those that it does not use change nothing.

        Raises:
            RequestError: the model has no chat template, or the template has no place for tools,
                or it refuses what it was given, or takes more time or memory than it may.
        """
        tokenizer = self._tokenizer
        if not tokenizer.chat_template:
            raise RequestError(
                "no_chat_template",
                "the model has no chat template; give the row as `prompt`, or use a model that "
                "was made for chats",
                "messages",
            )
        given = [dict(tool) for tool in tools or ()] or None
        try:
            template = compiled(tokenizer.get_chat_template(tools=given))
            if given is not None and "tools" not in template.variables:
                raise RequestError(
                    "tools_not_supported",
                    "the model's chat template has no place for tools, so the model would not "
                    "see them; leave them out, or use a model that was made for tools",
                    "tools",
                )
            return self._rendered(template, messages, given, template_kwargs or {})
        except RequestError:
            raise
        except _TOO_MUCH as error:
            raise RequestError(
                "template_error",
                f"the model's chat template takes too much for this row: {_reason(error)}",
                "messages",
            ) from error
        except Exception as error:  # templates raise whatever their author chose
            reason = str(error)[:_MAX_REASON] or type(error).__name__
            raise RequestError(
                "chat_template_refused",
                f"the model's chat template refuses the messages: {reason}",
                "messages",
            ) from error

    def _rendered(
        self,
        template: ChatTemplate,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        template_kwargs: Mapping[str, Any],
    ) -> str:
        if reserved := sorted(RESERVED & template_kwargs.keys()):
            raise ValueError(f"{reserved[0]} cannot be set")
        if not all(
            isinstance(document, dict) for document in template_kwargs.get("documents") or ()
        ):
            raise TypeError("documents should be a list of objects with a title and a text")
        variables = {"documents": None, **self._special_tokens, **template_kwargs}
        fixed = {"tools": tools, "add_generation_prompt": True}
        text = template.render(
            {**variables, **fixed, "messages": [_as_templates_read_it(m) for m in messages]}
        )
        text.encode()  # tokenizers refuse a lone surrogate, and all texts that are beside it
        return text

    def encode_chats(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered chats. The template wrote the special tokens, so none is added.

        Raises:
            RequestError: the tokenizer does not take one of them.
        """
        return self._encode(texts, add_special_tokens=False)

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of raw prompts, with the tokenizer's BOS once, where it has one.

        Raises:
            RequestError: the tokenizer does not take one of them.
        """
        bos = self._tokenizer.bos_token_id
        return [
            ids[1:] if len(ids) > 1 and bos is not None and ids[0] == ids[1] == bos else ids
            for ids in self._encode(texts, add_special_tokens=True)
        ]

    def encode_openings(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of raw texts that something follows: as `encode_prompts`, but nothing is added
        at their end."""
        first = [] if self._adds_bos is None else [self._adds_bos]
        return [
            ids if ids[:1] == first else first + ids
            for ids in self._encode(texts, add_special_tokens=False)
        ]

    @property
    def opening_token(self) -> int | None:
        """What stands before the first token of a text: the token that begins one, or ends the
        one before."""
        bos: int | None = self._tokenizer.bos_token_id
        eos: int | None = self._tokenizer.eos_token_id
        return eos if bos is None else bos

    def _encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        if not texts:
            return []
        with _refusals():
            ids: list[list[int]] = self._tokenizer(
                list(texts), add_special_tokens=add_special_tokens, return_attention_mask=False
            )["input_ids"]
        return ids


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """A text that the tokenizer does not take is a refusal, and no end of this thread."""
    try:
        yield
    except BaseException as error:
        # A panic of its library, as of a regular expression that goes on and on, is no Exception.
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        raise RequestError(
            "tokenizer_error", f"the model's tokenizer does not take the text: {_reason(error)}"
        ) from error


def _as_templates_read_it(message: Mapping[str, Any]) -> dict[str, Any]:
    """As transformers hands it over: without nulls, and with the older name of reasoning."""
    given = {key: value for key, value in message.items() if value is not None}
    if "reasoning_content" in given:
        given = {"thinking": given["reasoning_content"], **given}
    return given


def _check_template(template: object, folder: str) -> None:
    """Refuse a template that no row of messages could be rendered with, whatever it holds."""
    try:
        for source in template.values() if isinstance(template, dict) else [template or ""]:
            compiled(source) if isinstance(source, str) else ChatTemplate(source)
    except Exception as error:
        raise ModelUnavailable(
            f"the model's chat template cannot be read: {_reason(error)}; mend or remove it "
            f"(chat_template.jinja, or `chat_template` of tokenizer_config.json, in {folder})"
        ) from error


def _reason(error: BaseException) -> str:
    reason = " ".join(str(error).split())[:_MAX_REASON]
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def _digest(folder: Path, template: object) -> str:
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes())
    digest.update(json.dumps(template, sort_keys=True).encode())
    return digest.hexdigest()


@contextlib.contextmanager
def _no_torch() -> Iterator[None]:
    """Hide torch from transformers while it is imported.

    transformers imports torch wherever it finds it, even for a tokenizer: 2 s and 200 MB that
    this process has no use for, since only the engine process computes.
    """
    find_spec = importlib.util.find_spec

    def without_torch(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name.partition(".")[0] == "torch" else find_spec(name, package)

    importlib.util.find_spec = without_torch
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # "PyTorch was not found"
    try:
        yield
    finally:
        importlib.util.find_spec = find_spec
