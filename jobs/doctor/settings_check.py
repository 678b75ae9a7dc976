"""Settings: can they work, and does each variable mean something?"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

from jobs.doctor.findings import Finding, fault, warning, well
from jobs.errors import SettingsError
from jobs.settings import Settings

_PREFIX = "PAGEMILL_"
# Those that `Settings` does not read: of logs, metrics, caches and compose, and those for tests.
_OTHERS = frozenset(
    {
        *("PAGEMILL_HOME", "PAGEMILL_DEBUG", "PAGEMILL_CACHE_DIR", "PAGEMILL_MODEL"),
        *("PAGEMILL_LOG_FORMAT", "PAGEMILL_LOG_LEVEL", "PAGEMILL_PROGRESS_SECONDS"),
        *("PAGEMILL_METRICS_PORT", "PAGEMILL_METRICS_HOST"),
        *("PAGEMILL_CHECK_INVARIANTS", "PAGEMILL_CPU_KERNELS", "PAGEMILL_GPU_KERNELS"),
    }
)
_TEST = "PAGEMILL_TEST_"


def check_settings(env: Mapping[str, str]) -> Iterator[Finding]:
    """Whether settings can be made of the environment, and what in it is none."""
    try:
        settings = Settings.from_env(env)
    except SettingsError as error:
        yield fault(
            "settings",
            f"{error}; database, broker and storage were not looked at",
            "correct the variable, and run `pagemill doctor` again",
        )
        return
    unknown = unknown_variables(env, settings)
    for name, close in unknown:
        yield warning(
            "settings",
            f"{name} is set, and is no setting of pagemill",
            f"set {close} if that was meant" if close else "see docs/cli.md, or unset it",
        )
    if not unknown:
        given = _ours(env)
        yield well("settings", f"set: {', '.join(given)}" if given else "none is set; the defaults")


def unknown_variables(env: Mapping[str, str], settings: Settings) -> list[tuple[str, str | None]]:
    """Variables that look like ours and are none, each with that which was perhaps meant."""
    known = settings.to_env().keys() | _OTHERS
    given = _ours(env)
    unknown = [name for name in given if name not in known and not name.startswith(_TEST)]
    # Slips in the first word (PAGEMIL_HOME), too; what else is in the environment is not like ours.
    unknown += sorted(
        name for name in env.keys() - set(given) if difflib.get_close_matches(name, known, 1, 0.9)
    )
    return [(name, _meant(name, known)) for name in unknown]


def _ours(env: Mapping[str, str]) -> list[str]:
    return sorted(name for name in env if name.startswith(_PREFIX))


def _meant(name: str, known: Collection[str]) -> str | None:
    """The variable that was meant: the only one that begins so, or the most similar one."""
    longer = [whole for whole in known if whole.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    return next(iter(difflib.get_close_matches(name, known, 1, 0.7)), None)
