"""Names that are no variables of a chat template, as transformers has them."""

from __future__ import annotations

import inspect

from jobs.tools import RESERVED


def test_the_arguments_of_transformers_are_reserved() -> None:
    from transformers import PreTrainedTokenizerBase
    from transformers.utils.chat_template_utils import render_jinja_template

    applied = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    rendered = inspect.signature(render_jinja_template).parameters
    variables = {"documents", "kwargs"}  # a template reads the first; the other is the variables
    assert (set(applied) | set(rendered) | {"messages"}) - variables <= RESERVED
