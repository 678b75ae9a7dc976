"""The hunt for the rows that kill the engine, against an engine of a few lines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import BatchChanged
from engine.request import FinishReason, Request, RequestOutput
from tests.support.played_engine import PlayedEngine, answer
from worker.inflight import PROBE, Inflight
from worker.suspects import DEATHS_ALONE, MORE_DEATHS_ALONE, Suspects

pytestmark = pytest.mark.quick


def requests(rows: int, samples: int = 1) -> list[Request]:
    return [
        Request(f"r{row}:{sample}", (1,), sample_index=sample)
        for row in range(rows)
        for sample in range(samples)
    ]


def blamed(engine: PlayedEngine) -> set[str]:
    errors = [o for o in engine.answers.values() if o.finish_reason is FinishReason.ERROR]
    assert all(o.error_code == "engine_crashed" for o in errors)
    return {o.request_id.rpartition(":")[0] for o in errors}


@st.composite
def hunts(draw: st.DrawFn) -> tuple[int, int, dict[str, int], dict[str, int]]:
    """Rows, places in a batch, steps of each row, and at which of its steps a row kills."""
    rows = draw(st.integers(1, 60))
    names = [f"r{i}" for i in range(rows)]
    steps = draw(st.lists(st.integers(1, 5), min_size=rows, max_size=rows))
    steps_of = dict(zip(names, steps, strict=True))
    poison = draw(st.sets(st.sampled_from(names), max_size=6))
    kills = {row: draw(st.integers(1, steps_of[row])) for row in sorted(poison)}
    return rows, draw(st.integers(1, 64)), steps_of, kills


@given(hunts(), st.integers(1, 3))
def test_just_the_rows_that_kill_are_blamed_after_a_bounded_number_of_deaths(
    hunt: tuple[int, int, dict[str, int], dict[str, int]], samples: int
) -> None:
    rows, places, steps, kills = hunt
    engine = PlayedEngine(places, steps, kills)
    engine.run(requests(rows, samples))
    assert blamed(engine) == set(kills)
    assert len(engine.answers) == rows * samples
    batch = min(places, rows)
    bound = len(kills) * (1 + math.ceil(math.log2(batch)) + DEATHS_ALONE)
    assert engine.deaths <= bound
    assert all(engine.alone[row] == DEATHS_ALONE for row in kills)


@given(hunts(), st.sets(st.integers(0, 200), max_size=40))
def test_kills_from_outside_make_nobody_guilty(
    hunt: tuple[int, int, dict[str, int], dict[str, int]], moments: set[int]
) -> None:
    """But for a row that they hit alone `DEATHS_ALONE` times, if nothing shows that they are."""
    rows, places, steps, kills = hunt
    clock = iter(range(1_000_000))
    engine = PlayedEngine(places, steps, kills, lambda: next(clock) in moments)
    engine.run(requests(rows))
    assert len(engine.answers) == rows
    found = blamed(engine)
    often = {row for row, deaths in engine.alone.items() if deaths >= DEATHS_ALONE}
    assert set(kills) <= found <= often
    if not any(engine.alone[row] for row in engine.alone.keys() - found):
        assert found == often
    if len(moments) < DEATHS_ALONE:
        assert found == set(kills)


def test_a_row_that_is_alone_is_tried_again() -> None:
    for deaths in range(DEATHS_ALONE):
        left = deaths
        moments = iter([False, True] + [False, False, False, True] * (left - 1) if left else [])
        engine = PlayedEngine(4, {}, {}, lambda moments=moments: next(moments, False))
        engine.run(requests(1))
        assert (engine.deaths, engine.alone["r0"]) == (deaths, deaths)
        assert blamed(engine) == set()


def test_kills_that_were_survived_make_more_of_them_necessary() -> None:
    suspects = Suspects()
    for _ in range(DEATHS_ALONE - 1):
        assert suspects.engine_died(["innocent"], with_others=False) is None
    suspects.answered("innocent")
    for _ in range(2 * (DEATHS_ALONE - 1)):
        assert suspects.engine_died(["other"], with_others=False) is None
    deaths = suspects.engine_died(["other"], with_others=False)
    assert deaths is not None
    assert deaths.alone == 2 * DEATHS_ALONE - 1


def test_so_does_a_batch_that_dies_and_is_answered() -> None:
    suspects = Suspects()
    suspects.engine_died(["a", "b"], with_others=False)
    suspects.answered("a")
    suspects.answered("b")
    for _ in range(DEATHS_ALONE):
        assert suspects.engine_died(["other"], with_others=False) is None
    assert suspects.engine_died(["other"], with_others=False) is not None


def test_deaths_that_a_row_is_blamed_for_do_not() -> None:
    suspects = Suspects()
    suspects.engine_died(["bad", "good"], with_others=False)
    suspects.answered("good")
    for bad in ("bad", "worse"):
        deaths = [suspects.engine_died([bad], with_others=False) for _ in range(DEATHS_ALONE)]
        assert deaths[-1] is not None


def test_but_a_row_that_kills_is_blamed_in_the_end() -> None:
    suspects = Suspects()
    for i in range(100):
        suspects.engine_died([f"r{i}"], with_others=False)
        suspects.answered(f"r{i}")
    deaths = None
    while deaths is None:
        deaths = suspects.engine_died(["bad"], with_others=False)
    assert deaths.alone == DEATHS_ALONE + MORE_DEATHS_ALONE


def test_the_message_says_what_was_seen_and_how_often() -> None:
    engine = PlayedEngine(8, {}, {"r2": 1})
    engine.run(requests(8))
    message = engine.answers["r2:0"].error_message
    assert message is not None
    # The batch, all suspects, and two halves; the second half of the second is not tried whole.
    assert "died 3 times while it computed this row alone and 3 times" in message
    assert "it was killed by SIGKILL" in message


def test_the_half_that_must_hold_the_killer_is_not_tried_whole() -> None:
    suspects = Suspects()
    rows = [f"r{i}" for i in range(8)]
    for _ in range(2):
        assert suspects.engine_died(rows, with_others=False) is None
    assert list(suspects.group.rows) == rows[:4]
    for row in rows[:4]:
        suspects.answered(row)
    assert list(suspects.group.rows) == rows[4:6]
    suspects.answered("r4")
    suspects.taken_back("r5")  # nobody knows of it, so the other half is tried whole
    assert list(suspects.group.rows) == rows[6:]


def test_rows_that_waited_are_not_halved_with_those_that_were_admitted() -> None:
    suspects = Suspects()
    suspects.engine_died(list("abcdef"), with_others=False)
    suspects.engine_died(list("ab"), with_others=False)
    found = []
    while suspects.group is not None:
        found.append("".join(suspects.group.rows))
        for row in list(suspects.group.rows):
            suspects.answered(row)
    assert found == ["a", "b", "cdef"]


def test_a_row_is_not_alone_beside_one_that_nobody_waits_for() -> None:
    inflight = Inflight()
    inflight.add(requests(2), lambda output: None)
    for _ in range(DEATHS_ALONE + 1):
        inflight.engine_started()
        inflight.batch_changed(BatchChanged(("r0:0", "old")))
        assert inflight.engine_died("").blamed is None


def test_a_row_taken_back_is_no_suspect_and_the_next_group_follows() -> None:
    inflight = Inflight()
    inflight.add(requests(4), lambda output: None)
    inflight.engine_started()
    inflight.batch_changed(BatchChanged(("r0:0", "r1:0")))
    assert inflight.engine_died("").admitted == 2
    inflight.engine_started()
    assert inflight.due() == (PROBE,)
    inflight.add([Request("r9:0", (1,))], lambda output: None)
    assert inflight.due() == (), "a new row does not join suspects"
    inflight.abort(["r0:0"])
    assert inflight.due() == (), "the engine has not answered the probe"
    inflight.answer(answer(PROBE))
    assert [r.request_id for r in inflight.due()] == ["r1:0"]
    inflight.abort(["r1:0"])
    assert [r.request_id for r in inflight.due()] == ["r2:0", "r3:0", "r9:0"]


def test_an_engine_that_dies_of_the_probe_suspects_nobody() -> None:
    inflight = Inflight()
    inflight.add(requests(1), lambda output: None)
    inflight.engine_started()
    inflight.batch_changed(BatchChanged(("r0:0",)))
    inflight.engine_died("")
    for _ in range(10):
        inflight.engine_started()
        inflight.batch_changed(BatchChanged((PROBE.request_id,)))
        death = inflight.engine_died("")
        assert (death.admitted, death.blamed) == (0, None)


def test_rows_that_are_to_run_apart_wait_for_those_before_and_all_others_for_them() -> None:
    inflight = Inflight()
    inflight.engine_started()
    began: list[str] = []
    inflight.add(requests(2), _nothing)
    assert len(inflight.due()) == 2
    inflight.add([Request("apart:0", (1,))], _nothing, apart=lambda: began.append("apart"))
    inflight.add([Request("later:0", (1,))], _nothing)
    inflight.answer(answer(Request("r0:0", (1,))))
    assert (inflight.due(), began) == ((), [])
    inflight.answer(answer(Request("r1:0", (1,))))
    assert began == ["apart"]
    assert [r.request_id for r in inflight.due()] == ["apart:0"]
    inflight.answer(answer(Request("apart:0", (1,))))
    assert [r.request_id for r in inflight.due()] == ["later:0"]
    assert began == ["apart"]


def test_rows_that_were_to_run_apart_and_are_taken_back_keep_nobody_waiting() -> None:
    inflight = Inflight()
    inflight.engine_started()
    inflight.add(requests(1), _nothing)
    inflight.due()
    inflight.add([Request("apart:0", (1,))], _nothing, apart=lambda: pytest.fail("never ran"))
    inflight.add([Request("later:0", (1,))], _nothing)
    assert inflight.due() == ()
    inflight.abort(["apart:0"])
    assert [r.request_id for r in inflight.due()] == ["later:0"]


def test_rows_apart_begin_again_with_the_next_engine_and_not_without_one() -> None:
    inflight = Inflight()
    began: list[str] = []
    inflight.add(requests(2), _nothing, apart=lambda: began.append("apart"))
    assert began == [], "there is no engine"
    inflight.engine_started()
    inflight.answer(answer(PROBE))
    inflight.batch_changed(BatchChanged(("r0:0",)))
    inflight.engine_died("")
    assert began == ["apart"]
    inflight.engine_started()
    inflight.answer(answer(PROBE))
    assert [r.request_id for r in inflight.due()][1:] == ["r1:0"]
    assert began == ["apart", "apart"]


@given(hunts(), st.integers(0, 20), st.integers(1, 10))
def test_rows_apart_are_beside_no_others_whatever_dies(
    hunt: tuple[int, int, dict[str, int], dict[str, int]], before: int, apart: int
) -> None:
    rows, places, steps, kills = hunt
    engine = PlayedEngine(places, steps, kills)
    todo = requests(rows)
    engine.add(todo[:before])
    engine.apart(todo[before : before + apart])
    engine.run(todo[before + apart :])
    assert blamed(engine) == set(kills)
    assert len(engine.answers) == rows


def _nothing(output: RequestOutput) -> None:
    pass


def test_suspects_are_counted_while_another_thread_changes_them() -> None:
    """As those do that watch, such as the heartbeat."""
    suspects = Suspects()

    class Rows(dict[str, None]):
        def __len__(self) -> int:
            suspects.set_apart(["late"], lambda: None)  # in the middle of the count
            return super().__len__()

    suspects.set_apart(["early"], lambda: None)
    assert suspects.group is not None
    suspects.group.rows = Rows(early=None)
    assert len(suspects) == 1
    assert len(suspects) == 2
