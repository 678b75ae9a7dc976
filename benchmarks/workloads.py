"""Write the three workloads that `benchmarks.compare` is meant for.

    python -m benchmarks.workloads [--folder .workloads] [--model smollm2-135m]

`shared-system-prompt`: 256 chats with one system prompt, 16 to 128 tokens each; `distinct-prompts`:
128 prompts with little in common, 20 to 256 tokens each; `few-shot`: 200 short questions after
the same 36 worked examples, 8 tokens each. The same at every run, through the model's own chat
template and tokenizer.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import workload_texts as texts

Chat = tuple[list[dict[str, str]], int]  # messages, and how many tokens to generate
HERE = Path(__file__).parent


def shared_system_prompt() -> Iterator[Chat]:
    rng = random.Random(1)
    for _ in range(256):
        request = rng.choice(texts.REQUESTS).format(tool=rng.choice(texts.TOOLS))
        asides = rng.sample(texts.ASIDES, rng.randrange(4))
        user = " ".join([rng.choice(texts.GREETINGS), request, *asides])
        yield (
            [_message("system", texts.SYSTEM), _message("user", user)],
            rng.choice((16, 32, 64, 128)),
        )


def distinct_prompts() -> Iterator[Chat]:
    rng = random.Random(2)
    tasks = [(essay, task) for task in texts.TASKS for essay in texts.ESSAYS]
    for essay, task in rng.sample(tasks, 128):
        notes = rng.sample(texts.NOTES, rng.randint(9, len(texts.NOTES)))
        user = " ".join([essay.format(task=task), "Consider these notes.", *notes])
        yield [_message("user", user)], rng.randint(20, 256)


def few_shot() -> Iterator[Chat]:
    rng = random.Random(3)
    examples = "\n\n".join(
        f"Message: {message}\nGroup: {label} ({reason})"
        for message, label, reason in texts.EXAMPLES
    )
    questions = [(q, tool) for q in texts.QUESTIONS for tool in texts.TOOLS]
    for question, tool in rng.sample(questions, 200):
        asked = question.format(tool=tool)
        asked = asked[0].upper() + asked[1:]
        text = f"{texts.INSTRUCTION}\n\n{examples}\n\nMessage: {asked}\nGroup:"
        yield [_message("user", text)], 8


KINDS: dict[str, Callable[[], Iterator[Chat]]] = {
    "shared-system-prompt": shared_system_prompt,
    "distinct-prompts": distinct_prompts,
    "few-shot": few_shot,
}


def rows(kind: str, tokenizer: Any) -> Iterator[dict[str, Any]]:
    """The lines of a workload's file, by a tokenizer of transformers."""
    for number, (messages, max_tokens) in enumerate(KINDS[kind]()):
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        yield {
            "id": f"{kind}-{number}",
            "text": text,
            "ids": tokenizer.encode(text, add_special_tokens=False),
            "max_tokens": max_tokens,
            "ignore_eos": True,
        }


def main() -> None:
    from transformers import AutoTokenizer

    from engine.loading import resolve_model

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=HERE.parent / ".workloads")
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(options.model).path)
    options.folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        path = options.folder / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(kind, tokenizer)))
        print(path)


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


if __name__ == "__main__":
    main()
