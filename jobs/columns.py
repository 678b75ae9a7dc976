"""What several tables are made of: their naming convention, and columns that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, String, text
from sqlalchemy.types import Double

from jobs.records import Counts
from jobs.sqltypes import UtcDateTime

# How constraints and indices are called.
NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

COUNT_NAMES = tuple(f.name for f in dataclasses.fields(Counts))
DEVICE_NAMES = ("device_seconds", "gpu_seconds")


def one_of(column: str, values: Iterable[str]) -> str:
    """The condition that a column has one of some values, as SQL."""
    return f"{column} IN ({', '.join(repr(str(v)) for v in values)})"


def counts() -> list[Column[Any]]:
    """The columns of `Counts`."""
    return [Column(name, BigInteger, nullable=False) for name in COUNT_NAMES]


def counts_are_counts() -> CheckConstraint:
    """None of them is negative."""
    return CheckConstraint(" AND ".join(f"{name} >= 0" for name in COUNT_NAMES), name="counts")


def device_time() -> list[Column[Any]]:
    """The columns of `DeviceTime`."""
    return [Column(name, Double, nullable=False, server_default=text("0")) for name in DEVICE_NAMES]


def lease() -> list[Column[Any]]:
    """The columns of a lease: who has it, until when, and its fencing token."""
    return [
        Column("lease_epoch", Integer, nullable=False),
        Column("lease_owner", String(255)),
        Column("lease_expires_at", UtcDateTime),
    ]
