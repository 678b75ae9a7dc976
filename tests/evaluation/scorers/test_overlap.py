"""`f1`, the ROUGE family, `bleu` and `chrf`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU, CHRF

from jobs.errors import PackageMissing, UsageError
from jobs.evaluation.scorers.overlap import common_subsequence
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.spec import ScorerSpec
from tests.support.scored_rows import row, scorer, value

pytestmark = pytest.mark.quick

FEW = ["the", "a", "cat", "cats", "sat", "on", "mat", "ran", "7"]
WORDS = st.lists(st.sampled_from(FEW), max_size=12).map(" ".join)


@pytest.mark.parametrize(
    ("answer", "target", "worth"),
    [
        ("the cat sat", "a cat sat down", 4 / 5),  # cat sat, and cat sat down
        ("cat cat", "cat", 2 / 3),
        ("dog", "cat", 0),
        ("", "cat", 0),
        ("", "", 1),
        ("the", "a", 0),  # where there is nothing else, articles stay
        ("x", ["y", "x z", "q"], 2 / 3),
        ("東京タワー", "東京", 4 / 7),
        ("Größe", "GRÖSSE", 1),
    ],
)
def test_f1(answer: str, target: Any, worth: float) -> None:
    assert value("f1", answer, target) == pytest.approx(worth)


@settings(max_examples=40)
@pytest.mark.parametrize("stem", [False, True])
@pytest.mark.parametrize("name", ["rouge_1", "rouge_2", "rouge_l"])
@given(answer=WORDS, targets=st.lists(WORDS, min_size=1, max_size=3))
def test_rouge_is_that_of_rouge_score(
    name: str, stem: bool, answer: str, targets: list[str]
) -> None:
    theirs = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}[name]
    one = RougeScorer([theirs], use_stemmer=stem)
    expected = max(one.score(target, answer)[theirs].fmeasure for target in targets)
    ours = value(name, answer, targets, stem=stem)
    # Of two texts without what is counted, rouge-score makes 0.
    tokens = [len(t.split()) for t in (answer, *targets)]
    if min(tokens) > 1:
        assert ours == pytest.approx(expected)


def test_rouge_of_other_scripts() -> None:
    assert value("rouge_1", "кот сидит", "кот", words="unicode") == pytest.approx(2 / 3)
    with pytest.raises(UsageError, match='stem is true; it goes with words "latin" only'):
        ScorerSpec("r", "rouge_l", {"stem": True, "words": "unicode"}).make()


def _by_table(a: Sequence[str], b: Sequence[str]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        last = 0
        for j, y in enumerate(b):
            last, row[j + 1] = row[j + 1], max(last + 1 if x == y else 0, row[j], row[j + 1])
    return row[-1]


@settings(max_examples=50)
@given(st.text("abc", max_size=40), st.text("abc", max_size=40))
def test_the_longest_common_subsequence(a: str, b: str) -> None:
    assert common_subsequence(a, b) == common_subsequence(b, a) == _by_table(a, b)


TEXTS = [
    ("The cat sat on the mat.", ["The cat is sitting on the mat.", "A cat sat on a mat"]),
    ("hello there", ["hello"]),
    ("", ["nothing was said"]),
    ("It is a guide to action which ensures that the army obeys.",
     ["It is a guide to action that ensures that the army will forever heed."]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "metric", "of_one"),
    [
        ("bleu", {}, BLEU(), BLEU(effective_order=True)),
        ("bleu", {"tokenize": "char", "lowercase": True}, BLEU(tokenize="char", lowercase=True),
         BLEU(tokenize="char", lowercase=True, effective_order=True)),
        ("chrf", {}, CHRF(), CHRF()),
        ("chrf", {"word_order": 2}, CHRF(word_order=2), CHRF(word_order=2)),
    ],
)  # fmt: skip
def test_bleu_and_chrf_are_those_of_sacrebleu(
    name: str, options: dict[str, Any], metric: Any, of_one: Any
) -> None:
    made = scorer(name, **options)
    assert isinstance(made, CorpusScorer)
    sums = np.zeros(0)
    for answer, targets in TEXTS:
        score = made.score(row(answer, targets))
        expected = of_one.sentence_score(answer, targets).score / 100
        assert score.value == pytest.approx(expected)
        counts = score.counts
        assert counts is not None
        sums = np.add(counts, sums) if sums.size else np.asarray(counts)
    references = [
        [targets[i] if i < len(targets) else None for _, targets in TEXTS] for i in range(2)
    ]
    expected = metric.corpus_score([answer for answer, _ in TEXTS], references).score
    assert made.value(sums) == pytest.approx(expected / 100)
    assert 0 < made.value(sums) < 1


def test_rows_that_are_missing_add_nothing() -> None:
    made = scorer("bleu")
    assert isinstance(made, CorpusScorer)
    assert made.score(row("x", None)).counts is None
    assert made.score(row(None, "x")).counts is None
    assert made.score(row(None, "x", error="expired")).counts is None


@pytest.mark.parametrize(
    ("name", "package"),
    [("bleu", "sacrebleu"), ("chrf", "sacrebleu"), ("rouge_l", "rouge_score"),
     ("json_schema", "jsonschema")],
)  # fmt: skip
def test_a_package_that_is_not_installed_is_named(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(module: str, *args: Any, **more: Any) -> Any:
        if module.partition(".")[0] == package:
            raise ImportError(module)
        return real(module, *args, **more)

    spec = ScorerSpec(name, name)
    monkeypatch.setattr(builtins, "__import__", without)
    shown = package.replace("_", "-")
    with pytest.raises(PackageMissing, match=rf"{name} needs the package {shown}: `pip") as caught:
        spec.make()
    assert "--editable '.[evals]'` in a clone" in str(caught.value)
    assert "-….whl[evals]'` with a wheel" in str(caught.value)
    assert caught.value.exit_code == 69
    assert spec.built().name == name  # what needs nothing installed


@settings(max_examples=25)
@given(st.text(), st.text())
def test_scores_are_from_0_to_1(answer: str, target: str) -> None:
    for name in ("f1", "rouge_1", "rouge_l", "bleu", "chrf"):
        score = value(name, answer, target)
        assert score is not None
        assert 0 <= score <= 1 + 1e-9


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_a_text_that_is_the_target_is_worth_one_and_no_more(name: str) -> None:
    made = scorer(name)
    assert isinstance(made, CorpusScorer)
    for words in range(1, 12):
        same = row(text := " ".join(FEW[:words]), text)
        score = made.score(same)
        assert score.value is not None
        assert 0.999 < score.value <= 1
        assert made.value(np.array(score.counts)) <= 1
