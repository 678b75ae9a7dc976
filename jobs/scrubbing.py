"""The last sieve: whatever a process writes has lost the secrets that it was given.

Messages of ours name a URL without its secrets. A traceback holds what a driver or a client said
before that, and a log holds lines of libraries: these go through here.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import Self

from jobs.settings import urls_in_env, words_in_env
from jobs.shown_urls import HIDDEN, scrubbed


class Sieve:
    """Hides the secrets of some URLs in any text.

    Args:
        urls: also lists of URLs, such as those of several sentinels.
        words: secrets that are no URLs.
    """

    def __init__(self, urls: Iterable[str], words: Iterable[str] = ()) -> None:
        self._urls = tuple(urls)
        self._words = sorted(words, key=len, reverse=True)  # one may hold another

    @classmethod
    def of_env(cls, *urls: str) -> Self:
        """For whatever is secret in the environment of this process, and in these URLs."""
        return cls((*urls_in_env(), *urls), words_in_env())

    def __call__(self, text: str) -> str:
        for url in self._urls:
            text = scrubbed(text, url)
        for word in self._words:
            text = text.replace(word, HIDDEN)
        return text


class SievingFormatter(logging.Formatter):
    """Formats a record as another formatter does, once its texts went through a sieve.

    Names of loggers and levels stay as they are, even where they are the password.
    """

    def __init__(self, formatter: logging.Formatter, sieve: Sieve) -> None:
        super().__init__()
        self._formatter = formatter
        self._sieve = sieve

    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit; an error here would show them as they are
            message = f"{record.msg} {record.args!r}"
        shown.msg, shown.args = self._sieve(message), None
        if record.exc_info and record.exc_info[0] is not None:
            shown.exc_text = self._sieve(self._formatter.formatException(record.exc_info))
        if record.stack_info:
            shown.stack_info = self._sieve(record.stack_info)
        for name, value in vars(record).items():
            if name not in _OWN and isinstance(value, str):
                setattr(shown, name, self._sieve(value))
        return self._formatter.format(shown)


def scrub_logs() -> None:
    """Put a sieve before all handlers of the root logger."""
    sieve = Sieve.of_env()
    for handler in logging.getLogger().handlers:
        handler.setFormatter(SievingFormatter(handler.formatter or logging.Formatter(), sieve))


# What a record has by itself; everything else came through `extra=`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
