"""The template's sandbox."""

from __future__ import annotations

import resource
import sys
import time

import pytest
from jinja2 import Environment, StrictUndefined

from jobs import sandbox
from jobs.errors import RowError, UsageError
from jobs.template import MAX_PROMPT_CHARS, PromptTemplate
from tests.support.template_attacks import ATTACKS, ENDLESS

pytestmark = pytest.mark.quick


def test_columns_are_variables_and_row_reaches_those_with_other_names() -> None:
    template = PromptTemplate(
        '{{ name|upper }} {{ row["a b"] }}{% for x in tags %} {{ x }}{% endfor %}\n'
    )
    assert template.render({"name": "ann", "a b": 2, "tags": ["p", "q"]}) == "ANN 2 p q"
    assert template.names == {"name", "row", "tags"}


def test_a_column_called_row_wins() -> None:
    assert PromptTemplate("{{ row }}").render({"row": "mine"}) == "mine"


def test_tojson_writes_json_and_not_html() -> None:
    assert PromptTemplate("{{ x|tojson }}").render({"x": {"a": "<é>"}}) == '{"a": "<é>"}'


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a\nb {{ x", "line 2 of the template: unexpected end of template"),
        ("{% if x %}", "line 1 of the template"),
        ("{{ x|nofilter }}", "line 1 of the template: No filter named 'nofilter'"),
        ("x\n{% include 'other' %}", "line 2 of the template loads another template"),
        ("{% import 'other' as o %}", "loads another template"),
        ("{% from 'other' import o %}", "loads another template"),
        ("{% extends 'other' %}", "loads another template"),
    ],
)
def test_a_template_that_cannot_work_is_refused_with_its_line(source: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PromptTemplate(source)


def test_an_undefined_variable_that_is_called_or_joined_is_undefined_too() -> None:
    for source in (
        *("{{ nope() }}", "{{ nope ~ 'x' }}", "{{ nope|join }}", "{{ nope.x }}"),
        *("{% for x in nope %}{% endfor %}", "{{ nope + 1 }}", "{{ nope % 1 }}"),
    ):
        with pytest.raises(RowError, match="'nope' is undefined"):
            PromptTemplate(source).render({})


def test_an_undefined_variable_names_itself_and_the_columns() -> None:
    with pytest.raises(RowError, match=r"'nope' is undefined \(the row has: a, b\)") as caught:
        PromptTemplate("{{ nope }}").render({"a": 1, "b": 2})
    assert caught.value.code == "undefined_variable"


@pytest.mark.slow
@pytest.mark.parametrize("source", ATTACKS)
def test_what_reaches_too_far_ends_as_an_error_of_the_row(source: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    tags = ["a"]
    with pytest.raises(RowError) as caught:
        PromptTemplate(source).render({"s": "x" * 100, "tags": tags})
    assert caught.value.code in ("template_error", "undefined_variable")
    assert tags == ["a"]
    assert time.monotonic() - started < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _A_LOT


_A_LOT = 300 << (20 if sys.platform == "darwin" else 10)  # 300 MB, as getrusage counts


@pytest.mark.slow
@pytest.mark.parametrize("source", ENDLESS)
def test_what_goes_on_and_on_ends_after_some_steps(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "MAX_STEPS", 1 << 12)
    with pytest.raises(
        RowError, match=r"over 4,096 steps|over 16,777,216 char|recursion"
    ) as caught:
        PromptTemplate(source).render({})
    assert caught.value.code == "template_error"


def test_a_rendering_ends_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.0)
    with pytest.raises(RowError, match="over 0 seconds"):
        PromptTemplate(ENDLESS[0]).render({})


def test_each_row_has_a_budget_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_STEPS", 100)
    template = PromptTemplate("{% for i in range(n) %}.{% endfor %}")
    for _ in range(3):
        assert template.render({"n": 90}) == "." * 90
        with pytest.raises(RowError, match="over 100 steps"):
            template.render({"n": 110})


ORDINARY = [
    "{% for x in tags %}{{ loop.index }}/{{ loop.length }} {{ x }}{{ ', ' if not loop.last }}"
    "{% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d if k != 'b' %}{{ k }}"
    "{% endfor %}",
    "{% for x in tags|map('upper')|reject('equalto', 'P') %}{{ loop.index0 }}{{ x }}{% endfor %}",
    "{% for x in tree recursive %}[{{ x.name }}{{ loop(x.children) if x.children }}]{% endfor %}",
    "{{ s ~ '-' ~ 3 ~ none ~ tags }}{{ s|join('.') }}{{ tags|join(', ') }}",
    "{{ '%s of %d' % (s, 3) }}{{ '{:>8} {a!r}'.format(s, a=1) }}{{ '%5.2f'|format(2.5) }}",
    "{{ '%(s)s %(tags)s' % {'s': s, 'tags': tags, 'x': long * 2} }}{{ '%s%%' % 5 }}",
    "{{ '{0}{0}{s}'.format(s, s=long)|length }}{{ '{} {}'.format(1, 'b') }}{{ '{{}}'.format() }}",
    "{{ '{:{w}}|'.format(s, w=9) }}{{ '{a[0]} {b.real}'.format(a=tags, b=3) }}",
    "{{ '{s}'.format_map({'s': s}) }}{{ '%(a)s'|format(a=1) }}{{ 15|replace(5, 6) }}",
    "{{ s.replace('l', 'L') }}{{ s|replace('l', 'L') }}{{ '-' * 10 }}{{ s|center(30) }}",
    "{% macro f(a, b=2) %}<{{ a }}{{ b }}{{ caller() if caller is defined }}>{% endmacro %}"
    "{{ f(1) }}{% call f(3) %}inside{% endcall %}",
    "{% set n = namespace(sum=0) %}{% for i in range(5) %}{% set n.sum = n.sum + i %}{% endfor %}"
    "{{ n.sum }}{% set block %}b{{ s }}{% endset %}{{ block }}",
    "{{ x is defined }}{{ s is string }}{{ 3 is divisibleby 3 }}{{ 5000000 is gt(4000000) }}"
    "{{ none|default(9000000, true) }}",
    "{{ long|length }}{{ long|truncate(20) }}{{ long|wordwrap(40)|length }}",
    "{{ long|indent|length }}{{ long|replace('e', 'ee')|length }}{{ long.split()|join('-') }}",
    "{% filter upper %}{{ s }}{% endfilter %}{% block a %}{{ s }}{% endblock %}{{ self.a() }}",
    "{{ tags|sort|first }}{{ [1, 2]|sum }}{{ tags|batch(1)|list }}{{ d|dictsort }}{{ -7 // 2 }}",
]


@pytest.mark.parametrize("source", ORDINARY)
def test_ordinary_templates_render_as_they_do_in_jinja(source: str) -> None:
    tree = [{"name": "a", "children": [{"name": "b", "children": []}]}]
    row = {"s": "hello", "tags": ["p", "q"], "d": {"b": 1, "a": 2}, "tree": tree}
    row["long"] = "some words of a text. " * 20_000
    jinjas = Environment(undefined=StrictUndefined).from_string(source)
    assert PromptTemplate(source).render(row) == jinjas.render(row)


def test_ordinary_arithmetic_is_allowed() -> None:
    source = "{{ '-' * 10 }} {{ 3 * 2000000 }} {{ 2 ** 10 }} {{ 5000000 * 2 }}"
    assert PromptTemplate(source).render({}) == "---------- 6000000 1024 10000000"


def test_the_longest_prompt() -> None:
    template = PromptTemplate("{{ x }}")
    assert len(template.render({"x": "x" * MAX_PROMPT_CHARS})) == MAX_PROMPT_CHARS
    with pytest.raises(RowError, match="over 1,048,576 characters"):
        template.render({"x": "x" * (MAX_PROMPT_CHARS + 1)})
