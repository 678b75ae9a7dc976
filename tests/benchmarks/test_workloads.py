"""The workloads that users make are what they are called, and the same every time."""

from __future__ import annotations

import pytest

from benchmarks import workloads

pytestmark = pytest.mark.quick


def prompts(kind: str) -> list[str]:
    return ["\n".join(m["content"] for m in chat) for chat, _ in workloads.KINDS[kind]()]


@pytest.mark.parametrize("kind", workloads.KINDS)
def test_each_is_the_same_at_every_run(kind):
    assert list(workloads.KINDS[kind]()) == list(workloads.KINDS[kind]())


def test_questions_come_after_shared_examples():
    found = prompts("few-shot")
    assert len(set(found)) == 200
    shared = found[0].rpartition("Message: ")[0]
    assert shared.count("Group: ") == 36
    assert all(p.startswith(shared) for p in found)
    assert {n for _, n in workloads.few_shot()} == {8}


def test_chats_share_their_system_prompt():
    systems = {chat[0]["content"] for chat, _ in workloads.shared_system_prompt()}
    assert len(systems) == 1
    assert len(list(workloads.shared_system_prompt())) == 256


def test_distinct_prompts_begin_differently():
    found = prompts("distinct-prompts")
    assert len({p.partition(" Consider")[0] for p in found}) == len(found) == 128


def test_rows_are_what_the_comparison_reads():
    class Tokenizer:
        def apply_chat_template(self, messages, tokenize, add_generation_prompt):
            assert (tokenize, add_generation_prompt) == (False, True)
            return "<" + messages[-1]["content"]

        def encode(self, text, add_special_tokens):
            assert not add_special_tokens
            return list(text.encode())

    row = next(workloads.rows("few-shot", Tokenizer()))
    assert row["id"] == "few-shot-0"
    assert bytes(row["ids"]).decode() == row["text"]
    assert (row["max_tokens"], row["ignore_eos"]) == (8, True)
