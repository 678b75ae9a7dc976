"""What the hub's client raises, in sentences that say what to do; and no secret in any of them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from engine.errors import EngineError
from jobs.shown_urls import scrubbed, without_password
from worker.telling import Refused

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Where files are stored, URLs are signed.
_SIGNED = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]+")
_MAX_REASON = 200  # characters
_AGAIN = "pull again: it goes on where it stopped"


def hide_secrets(text: str) -> str:
    """A text without tokens, and without the passwords and signatures of URLs."""
    for token in {get_token(), os.environ.get("HF_TOKEN")}:
        if token:
            text = text.replace(token.strip(), "***")
    return _SIGNED.sub(r"\1?***", scrubbed(text, constants.ENDPOINT))


@contextmanager
def in_words(name: str, revision: str | None) -> Iterator[None]:
    """Errors of the hub's client, of its transport and of the disk become `Refused`."""
    try:
        yield
    except GatedRepoError as error:
        raise Refused(
            "model",
            f"{name} is gated: accept its terms at {_endpoint()}/{name}, then set HF_TOKEN to a "
            "token of that account",
        ) from error
    except RepositoryNotFoundError as error:
        raise Refused("model", _not_found(name, error)) from error
    except RevisionNotFoundError as error:
        raise Refused(
            "model", f"{name} has no revision {revision!r}: name a branch, a tag or a commit of it"
        ) from error
    except HFValidationError as error:
        raise Refused("model", f"{name!r} cannot be a model of the hub: {error}") from error
    except HfHubHTTPError as error:
        raise _http(name, error) from error
    except (Refused, EngineError):
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise Refused(
                "storage",
                f"the disk of {constants.HF_HUB_CACHE} is full: make room, or set HF_HOME to a "
                f"folder on another disk; then {_AGAIN}",
            ) from error
        if error.filename is not None:
            raise Refused(
                "storage",
                f"{error.filename}: {error.strerror}; change the permissions of it, or set "
                "HF_HOME to another folder",
            ) from error
        raise _away(error) from error
    except Exception as error:  # whatever the transport of the day raises
        raise _away(error) from error


def _not_found(name: str, error: HfHubHTTPError) -> str:
    private = "; if it is private, set HF_TOKEN to a token of an account that may read it"
    if get_token():
        private = "; if it is private, HF_TOKEN is not of an account that may read it"
    status = error.response.status_code
    return f"there is no model {name} at {_endpoint()} ({status}): check the spelling{private}"


def _http(name: str, error: HfHubHTTPError) -> Refused:
    status = error.response.status_code
    if status in (401, 403):
        what = "does not take the token" if get_token() else "wants a token"
        return Refused(
            "model",
            f"{_endpoint()} {what} for {name} ({status}): set HF_TOKEN to a valid one, of an "
            "account that may read the model",
        )
    if status == 429:
        return Refused(
            "hub", f"{_endpoint()} takes no more requests for now ({status}): wait, then {_AGAIN}"
        )
    return Refused("hub", f"{_endpoint()} answers {status} for {name}: wait, then {_AGAIN}")


def _away(error: Exception) -> Refused:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_REASON]
    return Refused(
        "hub",
        f"{_endpoint()} cannot be reached, or broke off ({reason}): check the network, the proxy "
        f"and HF_ENDPOINT; then {_AGAIN}",
    )


def _endpoint() -> str:
    return without_password(constants.ENDPOINT)
