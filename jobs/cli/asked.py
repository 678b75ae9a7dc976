"""What an evaluation asks, and what is made of the answers, as lines for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jobs.cli.console import one_line
from jobs.evaluation.rules import Bound, parse_rule

_LONGEST = 60  # characters of a value; templates and schemas may be as long as they like


def asked_lines(spec: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Options of the job, scorers and gate of a specification, each with its name."""
    options = {**spec.get("submit", {}), "seed": spec.get("seed", 0)}
    return [
        ("options", _pairs(options, ", ")),
        ("target", spec.get("target")),
        ("scorers", ", ".join(_scorer(scorer) for scorer in spec.get("scorers", []))),
        ("slices", ", ".join(spec.get("slices", []))),
        ("gate", _gate(spec.get("gate"))),
    ]


def _scorer(scorer: Mapping[str, Any]) -> str:
    """As `--scorer` has it: `numeric:tolerance=0.01,as=price`."""
    kind, options = scorer.get("scorer"), dict(scorer.get("options", {}))
    if (name := scorer.get("name", kind)) != kind:
        options["as"] = name
    return f"{kind}:{_pairs(options, ',')}" if options else str(kind)


def _gate(gate: Mapping[str, Any] | None) -> str:
    """Its rules, what they compare with, and how many rows may have no score."""
    if gate is None:
        return "none"
    rules = gate.get("rules", [])
    missing = gate.get("missing", 0)
    share = f"{missing * 100:g}% of the" if isinstance(missing, float) else f"{missing:,}"
    compares = any(not isinstance(parse_rule(rule, "the gate"), Bound) for rule in rules)
    against = f" against {gate.get('against', 'baseline')}" if compares else ""
    return f"{', '.join(rules) or 'no rules'}{against}; {share} rows may be missing"


def _pairs(options: Mapping[str, Any], between: str) -> str:
    return between.join(f"{name}={_short(value)}" for name, value in options.items())


def _short(value: Any) -> str:
    """A value on one line, cut where it is long; text is in quotes where it has spaces."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = one_line(text)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 1]}…"
    return f'"{text}"' if isinstance(value, str) and (" " in text or not text) else text
