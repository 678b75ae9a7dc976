"""Every error of the worker.

WorkerError
├── ModelUnavailable       the model or its settings cannot be served
├── EngineLost             the engine died too often, and no row was to blame
└── MetricsUnavailable     the metrics cannot be served where they were asked for
"""

from __future__ import annotations


class WorkerError(Exception):
    """Base of all errors that the worker raises on purpose; `exit_code` is the process's."""

    exit_code = 1


class ModelUnavailable(WorkerError):
    """The model or its settings cannot be served; starting again would not help."""

    exit_code = 3


class EngineLost(WorkerError):
    """The engine died again and again while it loaded, or with no row in its batch."""

    exit_code = 4


class MetricsUnavailable(WorkerError):
    """The address for the metrics cannot be listened on."""

    exit_code = 64
