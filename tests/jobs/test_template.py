"""The template's sandbox."""

from __future__ import annotations

import time

import pytest

from jobs.errors import RowError, UsageError
from jobs.template import MAX_PROMPT_CHARS, PromptTemplate

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


def test_an_undefined_variable_names_itself_and_the_columns() -> None:
    with pytest.raises(RowError, match=r"'nope' is undefined \(the row has: a, b\)") as caught:
        PromptTemplate("{{ nope }}").render({"a": 1, "b": 2})
    assert caught.value.code == "undefined_variable"


ATTACKS = [
    "{{ 'x' * 10000000000 }}",
    "{{ 10000000000 * 'x' }}",
    "{{ [0] * 10000000000 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ 2 ** 1000000 }}",
    "{{ range(10000000000)|list }}",
    "{{ 'x'.center(10000000000) }}",
    "{{ 'x'.ljust(width=10000000000) }}",
    "{% for i in range(99999) %}{{ s }}{% endfor %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ s.__class__ }}",
    "{{ tags.append(1) }}",
    "{{ tags.clear() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ 1 / 0 }}",
    "{{ s + 1 }}",
    "{{ s() }}",
]


@pytest.mark.parametrize("source", ATTACKS)
def test_what_reaches_too_far_ends_as_an_error_of_the_row(source: str) -> None:
    started = time.monotonic()
    tags = ["a"]
    with pytest.raises(RowError) as caught:
        PromptTemplate(source).render({"s": "x" * 100, "tags": tags})
    assert caught.value.code in ("template_error", "undefined_variable")
    assert tags == ["a"]
    assert time.monotonic() - started < 5


def test_ordinary_arithmetic_is_allowed() -> None:
    source = "{{ '-' * 10 }} {{ 3 * 2000000 }} {{ 2 ** 10 }} {{ 5000000 * 2 }}"
    assert PromptTemplate(source).render({}) == "---------- 6000000 1024 10000000"


def test_the_longest_prompt() -> None:
    template = PromptTemplate("{{ x }}")
    assert len(template.render({"x": "x" * MAX_PROMPT_CHARS})) == MAX_PROMPT_CHARS
    with pytest.raises(RowError, match="over 1,048,576 characters"):
        template.render({"x": "x" * (MAX_PROMPT_CHARS + 1)})
