"""The page on which every command shows what it prints."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from typer.main import get_command

from docs.tour import MOST_LINES, PAGE
from docs.tour_steps import STEPS
from jobs.cli.app import app

pytestmark = pytest.mark.quick

BLOCKS = re.findall(r"^```console\n(.*?)\n```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def commands(group: click.Command, name: str = "pagemill") -> Iterator[str]:
    inner = getattr(group, "commands", None)
    if inner is None:
        yield name
        return
    for word, command in inner.items():
        yield from commands(command, f"{name} {word}")


def test_every_command_is_there_with_its_output() -> None:
    silent = [step.command for _, _, steps in STEPS.sections for step in steps if step.background]
    for command in commands(get_command(app)):
        shown = [block for block in BLOCKS if f"{block} ".startswith(f"$ {command} ")]
        shown += [block for block in BLOCKS if block.startswith(f"$ {command}\n")]
        assert shown, f"{command}: add it to docs/tour_steps.py, and run `python -m docs.tour`"
        assert any("\n" in block for block in shown), command
    assert [block[2:] for block in BLOCKS if "\n" not in block] == silent


def test_it_was_made_of_the_steps() -> None:
    steps = [step for _, _, steps in STEPS.sections for step in steps]
    assert len(BLOCKS) == len(steps)
    for block, step in zip(BLOCKS, steps, strict=True):
        pattern = re.sub(r"\\{\w+\\}", r"\\w+", re.escape(f"$ {step.command}"))
        assert re.fullmatch(pattern, block.splitlines()[0]), step.command
        assert len(block.splitlines()) <= MOST_LINES + 2


def test_it_says_nothing_of_where_it_was_made() -> None:
    assert re.findall(r"/(?:tmp|root|work|opt|var)\b\S*", PAGE.read_text()) == []
