"""The deployment that a call works on, open as long as the call."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.settings import Settings

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment

# A program hears of what the command line says on stderr by its log. One that has set up none
# has it on stderr, too.
log = logging.getLogger("pagemill.jobs")


@contextmanager
def opened(settings: Settings | None = None, *, create: bool = False) -> Iterator[Deployment]:
    """Open a deployment: of the environment, if no settings are given."""
    from jobs.cli.deployment import opened as opened_deployment

    with opened_deployment(create, settings or Settings.from_env(), log.warning) as deployment:
        yield deployment
