"""A job as JSON: what commands print, and what is told to a URL (see docs/cli.md)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.records import Counts, DeviceTime, JobRecord


def job_json(job: JobRecord, output: str | None) -> dict[str, Any]:
    """A job, with the counts of its committed chunks.

    Args:
        output: where its newest published version lies.
    """
    return {
        "id": job.id,
        "name": job.name,
        "state": job.state.value,
        "model": job.model,
        "input": job.input_uri,
        "version": job.version,
        "published_version": job.published_version,
        "output": output,
        "rows": rows_json(job.total_rows, job.counts),
        "tokens": tokens_json(job.counts),
        "device": device_json(job.counts, job.device),
        "chunks": {"total": job.chunks_total, "left": job.chunks_left},
        "seed": job.seed,
        "fingerprint": job.fingerprint,
        "idempotency_key": job.idempotency_key,
        "priority": job.priority,
        "stop_reason": job.stop_reason,
        "waiting_for": job.waiting_for,
        "error": None
        if job.error_code is None
        else {"code": job.error_code, "message": job.error_message},
        **{
            name: time_json(getattr(job, name))
            for name in (
                "created_at",
                "started_at",
                "finalizing_at",
                "finished_at",
                "deadline_at",
                "paused_at",
                "cancel_requested_at",
            )
        },
    }


def rows_json(total: int, counts: Counts) -> dict[str, int]:
    return {
        "total": total,
        "completed": counts.completed,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "expired": counts.expired,
    }


def tokens_json(counts: Counts) -> dict[str, int]:
    return {
        "prompt": counts.prompt_tokens,
        "cached": counts.cached_tokens,
        "completion": counts.completion_tokens,
    }


def tokens_per_hour(counts: Counts, device: DeviceTime) -> float | None:
    """Tokens that were computed, of prompts and of answers, an hour of the devices.

    None where no device computed.
    """
    computed = counts.prompt_tokens - counts.cached_tokens + counts.completion_tokens
    return computed * 3600 / device.seconds if device.seconds else None


def device_json(counts: Counts, device: DeviceTime) -> dict[str, Any]:
    pace = tokens_per_hour(counts, device)
    return {
        "seconds": round(device.seconds, 3),
        "gpu_seconds": round(device.gpu_seconds, 3),
        "tokens_per_hour": None if pace is None else round(pace),
    }


def time_json(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
