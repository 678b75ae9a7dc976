"""`kill -9` at random moments, and servers that fail: each row comes once, and unchanged.

`make test` kills six times on each database, `make chaos` as often as CHAOS_KILLS says.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.support.storm import Local, Servers, Storm, placed

FEW = 6
MANY = int(os.environ.get("CHAOS_KILLS", "152"))

PLACES = pytest.mark.parametrize("place", [Local.name, Servers.name])


@PLACES
@pytest.mark.timeout(600)
def test_no_fault_loses_doubles_or_changes_a_row(tmp_path, tiny_model, calm_answers, place):
    weather(tmp_path, tiny_model, calm_answers, place, FEW)


@PLACES
@pytest.mark.chaos
@pytest.mark.timeout(3000)
def test_hundreds_of_kills(tmp_path, tiny_model, calm_answers, place, record_property):
    for name, value in weather(tmp_path, tiny_model, calm_answers, place, MANY).items():
        record_property(name, value)


def weather(folder, model, calm_answers, place, kills):
    """A storm, and what is left after it; returns its figures."""
    seed = time.time_ns()
    print(f"random seed {seed}")
    began = time.monotonic()
    with (
        placed(place, folder, long=kills > FEW) as there,
        Storm(there, model, random.Random(seed)) as storm,
    ):
        storm.run(kills)
        seconds = time.monotonic() - began
        storm.check(calm_answers)
        return {"place": place, "seed": seed, "seconds": round(seconds), **storm.figures()}
