"""A model's chat template renders as with transformers, and can do no harm."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time

import pytest
from jinja2 import TemplateSyntaxError

from jobs import sandbox
from tests.support.template_attacks import ATTACKS, ENDLESS
from tests.support.tiny_model import byte_tokenizer
from worker.chat_template import ChatTemplate
from worker.prompts import PromptEncoder

pytestmark = pytest.mark.quick

USER = {"role": "user", "content": "  What is 2 < 3 & \u00e9?  "}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": [1, None, "\u00e9"]}}}
CHATS = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "Yes."}],
    [USER, {"role": "assistant", "content": None, "tool_calls": [CALL], "name": None}, USER],
    [
        USER,
        {"role": "assistant", "content": "<think>hm</think>Yes.", "reasoning_content": "hm"},
        {"role": "tool", "content": "{}", "tool_call_id": "c"},
    ],
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": {}}}}]

# What real chat templates do, in small.
TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}\n  {% if m.content %}\n{{ m['role'] }}: "
    "{{ m.content | trim }}\n  {% endif %}\n{% endfor %}\n",
    "{%- for m in messages -%}{{ loop.index0 ~ m.role + '\\n' }}{%- endfor -%}"
    "{% if add_generation_prompt %}<go>{% endif %}",
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}"
    "{% if loop.index > 1 %}{% break %}{% endif %}{% endfor %}",
    "{{ tools | tojson }}{{ tools | tojson(indent=4) }}{{ messages | tojson(ensure_ascii=true) }}"
    "{{ messages[0] | tojson(separators=(',', ':'), sort_keys=True) }}",
    "{% set ns = namespace(last=-1, seen=[]) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% set ns.seen = ns.seen + [m.role] %}{% endif %}{% endfor %}"
    "{{ ns.last }}{{ ns.seen }}{{ messages[::-1][0].role }}{{ messages[1:] | length }}",
    "{% for m in messages %}{% generation %}{% set x = m.role %}{{ x }}{% endgeneration %}"
    "{{ x is defined }}{% endfor %}",
    "{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}"
    "{{ c.function.name }}{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}"
    "{% endfor %}{{ c.function.arguments.items() | list }}{% endfor %}{% endif %}{% endfor %}",
    "{% for m in messages %}{{ (m.content or '').split('</think>')[-1].lstrip('\\n') }}"
    "{{ m.reasoning_content }}{{ m.thinking }}{{ 'name' in m }}{{ m.get('tool_call_id', 0) }}"
    "{% endfor %}",
    "{{ dict(a=1, b=dict([('c', 2)])) }}{{ dict.fromkeys(['x'], 1) }}{{ documents }}{{ tools }}",
    "{% macro show(m, deep=false) %}{{ m.role }}{{ deep }}{% endmacro %}"
    "{% for m in messages %}{{ show(m, deep=loop.last) }}{% endfor %}{{ strftime_now('%Y') }}",
    "{{ messages | map(attribute='role') | unique | sort | join(', ') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='content') | list }}",
    "{{ thinking_wanted | default('none') }}{{ nothing.at.all if nothing is defined }}"
    "{{ messages | last | string | length }}{{ messages[-1]['content'][:5] | upper }}",
    "{% if messages[0].role != 'system' and 2 * 3 // 4 - 1 == 0 %}{{ '%s' % messages[0].role }}"
    "{% else %}{{ '{:>9}'.format('x') }}{% endif %}{{ [1, 2] == [1, 2] }}{{ {'a': 1}['a'] }}",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_it_renders_as_with_transformers(template: str, tmp_path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path)
    encoder = PromptEncoder(str(tmp_path))
    rendered = set()
    for chat in CHATS:
        for tools in (None, TOOLS) if "tools" in template else (None,):
            for variables in ({}, {"thinking_wanted": "much", "documents": [{"title": "t"}]}):
                ours = encoder.render(chat, tools, variables)
                assert ours == tokenizer.apply_chat_template(
                    chat, tools, tokenize=False, add_generation_prompt=True, **variables
                )
                rendered.add(ours)
    assert rendered != {""}


OF_CHATS = ["{{ strftime_now('%c' * 999) }}", "{% include 'x' %}", "{{ raise_exception('no') }}"]


@pytest.mark.slow
@pytest.mark.parametrize("source", [*ATTACKS, *OF_CHATS])
def test_it_can_do_no_harm(source: str) -> None:
    """It ends soon and small, and writes nothing that it should not reach."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    messages = [{"role": "user", "content": "x" * 100, "tags": ["a"]}]
    prefix = "{% set s = messages[0].content %}{% set tags = messages[0].tags %}"
    try:
        written = ChatTemplate(prefix + source).render({"messages": messages})
    except Exception:
        written = ""
    # Undefined is empty here, and not an error: what was not refused wrote nothing.
    assert written.strip("x") in ("", "0")
    assert messages[0]["tags"] == ["a"]
    assert time.monotonic() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10


@pytest.mark.slow
@pytest.mark.parametrize("source", ENDLESS)
def test_it_ends_after_some_steps(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_STEPS", 1 << 12)
    with pytest.raises(Exception, match=r"steps|characters|recursion"):
        ChatTemplate(source).render({})


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        *("{{ 'x' * 10000000000 }}", "{{ 9 ** 9 ** 9 }}", "{{ 'x' | center(10000000000) }}"),
        *("{{ " + "(" * 100_000, "{{ " + "not " * 100_000 + "1 }}", "{{ a" + ".b" * 100_000 + "}}"),
        *("{% if a %}" * 5_000, "{{ " + "-" * 100_000 + "1 }}", "{{ 1" + " + 1" * 100_000 + " }}"),
        *("{{ " + "[" * 100_000, "{% for i in x %}" * 100, "x" * (2 << 20)),
    ],
)
def test_to_compile_it_takes_little_too(source: str, tmp_path) -> None:
    """A worker compiles the template of its model at its start: it lives, whatever that is."""
    code = (
        "import json, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "from worker.chat_template import ChatTemplate\n"
        "try:\n    ChatTemplate(json.load(sys.stdin))\n"
        "except MemoryError as error:\n    raise\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(source), capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_long_chats_have_a_larger_budget() -> None:
    """One that a model with a long context may be asked."""
    template = ChatTemplate(
        "{% for m in messages %}{{ '<' + m.role + '>' + m.content | trim + '\n' }}{% endfor %}"
    )
    many = [{"role": "user", "content": "word"}] * 50_000
    assert len(template.render({"messages": many})) == 50_000 * 11
    long = [{"role": "user", "content": "a long text " * 300_000}]
    assert len(template.render({"messages": long})) > 3_500_000


def test_threads_have_budgets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_STEPS", 2000)
    template = ChatTemplate("{% for i in range(1500) %}.{% endfor %}")
    written: list[str] = []

    def render() -> None:
        written.extend(template.render({}) for _ in range(20))

    threads = [threading.Thread(target=render) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written == ["." * 1500] * 80


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
    assert "tools" in ChatTemplate(template).variables


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
    assert "tools" not in ChatTemplate(template).variables


def test_what_is_no_template_is_no_answer():
    with pytest.raises(TemplateSyntaxError):
        ChatTemplate("{% if %}")
