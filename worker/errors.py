"""Every error of the worker.

WorkerError
├── ModelUnavailable       the engine refused the model or its settings
└── EngineLost             the engine died too often without finishing a row
"""

from __future__ import annotations


class WorkerError(Exception):
    """Base of all errors that the worker raises on purpose; `exit_code` is the process's."""

    exit_code = 1


class ModelUnavailable(WorkerError):
    """The engine refused the model or its settings; starting again would not help."""

    exit_code = 3


class EngineLost(WorkerError):
    """The engine died again and again without finishing a row."""

    exit_code = 4
