"""`deterministic`: the logits of a token have the same bits whatever each step computes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.loading import load_model, resolve_model
from engine.runner import Runner
from tests.support.by_hand import ByHand, load_runner
from tests.support.cpu_kernels import using, variants
from tests.support.tiny_families import build_family
from tests.support.tiny_model import build_tiny_model

FAMILIES = (
    "llama grouped",
    "llama biases",
    "llama gelu",
    "mistral mixed",
    "qwen2 yarn",
    "qwen3 upper window",
)
LENGTHS = (135, 80, 64, 1)
# One chunk after another of some sequences, in each step; what is left of them is computed alone.
PLANS = st.lists(
    st.dictionaries(
        st.integers(0, len(LENGTHS) - 1), st.one_of(st.just(1), st.integers(1, 90)), min_size=1
    ),
    max_size=12,
)


def texts() -> list[list[int]]:
    """Sequences of which the first two begin alike."""
    draw = random.Random(0)
    made = [[draw.randrange(256) for _ in range(length)] for length in LENGTHS]
    made[1][:70] = made[0][:70]
    return made


def one_by_one(runner: Runner) -> list[torch.Tensor]:
    """Logits after each token of each sequence, every token a step of its own."""
    hand, found = ByHand(runner), []
    for i, tokens in enumerate(texts()):
        steps = [hand.part(str(i), tokens, at, at + 1) for at in range(len(tokens))]
        found.append(torch.cat([runner.logits(hand.batch(part)) for part in steps]))
        hand.free(str(i))
    return found


def by_plan(
    runner: Runner, plan: list[dict[int, int]], seed: int
) -> list[tuple[int, int, torch.Tensor]]:
    """(sequence, position, logits) at the end of each chunk; block tables are other ones."""
    hand, tokens = ByHand(runner, seed), texts()
    done = [0] * len(tokens)
    found = []
    rest = [{i: 9} for i in range(len(tokens)) for _ in range(0, LENGTHS[i], 9)]
    for step in (*plan, *rest):
        parts = []
        for i, count in step.items():
            end = min(done[i] + count, len(tokens[i]))
            if end > done[i]:
                parts.append((i, hand.part(str(i), tokens[i], done[i], end)))
                done[i] = end
        if parts:
            logits = runner.logits(hand.batch(*(part for _, part in parts)))
            found += [(i, part.end - 1, row) for (i, part), row in zip(parts, logits, strict=True)]
    return found


@pytest.mark.parametrize("kernels", variants())
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_do_not_depend_on_the_steps(tmp_path: Path, family: str, kernels: str) -> None:
    build_family(family, tmp_path)
    kv_dtype = "float16" if family in ("llama biases", "mistral mixed") else "float32"
    with using(kernels):
        runner = load_runner(
            tmp_path, num_blocks=60, block_size=8, kv_dtype=kv_dtype, deterministic=True
        )
        expected = one_by_one(runner)

        @settings(deadline=None, max_examples=10)
        @given(PLANS, st.integers(0, 99))
        def check(plan: list[dict[int, int]], seed: int) -> None:
            for i, position, logits in by_plan(runner, plan, seed):
                assert torch.equal(logits, expected[i][position])

        check()


def test_they_are_the_logits_of_the_default(tmp_path: Path) -> None:
    build_family("qwen3 yarn", tmp_path)
    plain, exact = (
        one_by_one(load_runner(tmp_path, num_blocks=60, deterministic=deterministic))
        for deterministic in (False, True)
    )
    for ours, theirs in zip(exact, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_where_it_cannot_be_is_refused(tmp_path: Path) -> None:
    files = resolve_model(str(build_tiny_model(tmp_path)))
    with pytest.raises(ConfigError, match="run in bfloat16 on cpu; add --device cpu --dtype float"):
        load_model(files, "bfloat16", "cpu", deterministic=True)
    with using("none"), pytest.raises(ConfigError, match=r"need the C\+\+ kernels"):
        load_model(files, "float32", "cpu", deterministic=True)
