"""The commands, from the Typer application itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from jobs.cli.app import app

_TYPES: dict[Any, str] = {int: "N", float: "X"}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its whole name, in the order of `pagemill --help`."""
    yield from _below("pagemill", get_command(app))


def markdown() -> str:
    return "\n".join(_section(name, command) for name, command in commands())


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for inner, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _below(f"{name} {inner}", child)


def _section(name: str, command: Any) -> str:
    about, examples = _help(command.help or "")
    parts = [f"## {name}\n", about, ""]
    if examples:
        parts += ["```text", examples, "```", ""]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    if arguments:
        parts += ["| argument | |", "|---|---|"]
        parts += [f"| `{_metavar(p)}` | {_cell(getattr(p, 'help', None))} |" for p in arguments]
        parts.append("")
    if options:
        parts += ["| option | default | variable | |", "|---|---|---|---|"]
        parts += [_option(p) for p in options]
        parts.append("")
    return "\n".join(parts)


def _help(text: str) -> tuple[str, str]:
    """The sentences of a help text, and its paragraphs that are to stay as they are."""
    kept, flowing = [], []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.lstrip().startswith("\b"):
            kept.append(paragraph.replace("\b", "").strip("\n"))
        else:
            flowing.append(_plain(re.sub(r"\s+", " ", paragraph)))
    return "\n\n".join(flowing), "\n\n".join(kept)


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" `{_metavar(option)}`".replace("|", "\\|")
    says = _cell(option.help)
    if option.required:
        says += " Required."
    if option.multiple and "repeatable" not in says:
        says += " May be given several times."
    shown = option.envvar if isinstance(option.envvar, str) else None
    return f"| {names}{value} | {_default(option)} | {f'`{shown}`' if shown else ''} | {says} |"


def _default(option: Any) -> str:
    value = option.default
    if value is None or callable(value) or value in ((), []):
        return ""
    if option.is_flag:
        return "on" if value else ("off" if option.secondary_opts else "")
    return f"`{getattr(value, 'value', value)}`"


def _metavar(parameter: Any) -> str:
    """What a value is, as the help has it: a word, the choices, or the type with its bounds."""
    if parameter.metavar:
        return str(parameter.metavar)
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is not Literal:
        kind = next((k for k in get_args(kind) if k is not type(None)), kind)
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    low, high = parameter.min, parameter.max
    bounds = f" ({low} to {high})" if None not in (low, high) else ""
    bounds = bounds or (f" ({low} or more)" if low is not None else "")
    return _TYPES.get(kind, "TEXT") + bounds


def _cell(text: str | None) -> str:
    return _plain(re.sub(r"\s+", " ", text or "")).replace("|", "\\|")


def _plain(text: str) -> str:
    """Without what Markdown would read as marks outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)
