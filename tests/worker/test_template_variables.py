"""Which variables a chat template reads, whatever it does with them."""

import pytest
from jinja2 import TemplateSyntaxError

from worker.template_variables import uses_variable

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "template",
    [
        "{{ tools | tojson }}",
        "{% for m in messages %}{% if loop.first and tools %}x{% endif %}{% endfor %}",
        "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools }}",
        "{% if mine is defined %}{% set tools = mine %}{% endif %}{{ tools }}",
        "{% set ns = namespace(t=tools) %}{{ ns.t }}",
        "{% macro list() %}{{ tools }}{% endmacro %}{{ list() }}",
        "{% generation %}{{ tools }}{% endgeneration %}",
        "{% for m in messages %}{% if tools %}{% break %}{% endif %}{% endfor %}",
    ],
)
def test_a_template_that_reads_it(template):
    assert uses_variable(template, "tools")


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages }} tools",
        "{% set tools = [] %}{{ tools }}",
        "{% macro list(tools) %}{{ tools }}{% endmacro %}{{ list([]) }}",
        "{{ messages[0].tools }}{{ 'tools' }}",
    ],
)
def test_a_template_that_does_not(template):
    assert not uses_variable(template, "tools")


def test_what_is_no_template_is_no_answer():
    with pytest.raises(TemplateSyntaxError):
        uses_variable("{% if %}", "tools")
