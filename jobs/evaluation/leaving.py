"""A process that drives evaluations is told to leave."""

from __future__ import annotations


class ToldToLeave(SystemExit):
    """This process is to end; a function of somebody's that exits wants nothing of the kind."""
