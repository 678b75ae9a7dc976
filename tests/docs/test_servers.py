"""The addresses that docs/servers.md shows are understood, and hide what they should."""

from __future__ import annotations

import re
import shlex

import pytest

from jobs.database_url import parse_url
from jobs.settings import Settings
from tests.support.markdown_pages import blocks
from tests.support.named_tests import page

pytestmark = pytest.mark.quick


def test_the_addresses_with_tls_are_settings_that_work() -> None:
    (block,) = (block for block in blocks("docs/servers.md") if block.language == "bash")
    variables = dict(word.split("=", 1) for word in shlex.split(block.code))
    settings = Settings.from_env(variables)
    assert settings.has_broker
    assert "SECRET" not in settings.shown_broker_url
    assert parse_url(settings.database_url).query["sslmode"] == "verify-full"


def test_the_addresses_of_the_tables_are_settings_that_work() -> None:
    brokers = re.findall(
        r"^\| `((?:rediss?|redis\+socket|sentinel)://.*?)` \|", page("servers.md"), re.M
    )
    assert len(brokers) == 4
    for broker in brokers:
        assert Settings.from_env(
            {"PAGEMILL_BROKER_URL": broker.replace("[user]", "user")}
        ).has_broker
