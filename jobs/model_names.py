"""Whether workers will find a model of some name, as far as that can be told without a network.

Workers may be on other machines, with other disks and other caches of the hub. So a name is refused
only if it can work nowhere; of one that may, a warning is all.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from jobs.errors import UsageError
from jobs.model_aliases import MODEL_ALIASES

# A part of `owner/name`, as the hub takes it.
_PART = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_HUB_URL = re.compile(r"(?:https?://[^/]+|hf:/)/([^/]+/[^/?#]+).*")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
_ALIKE = 0.7


@dataclass(frozen=True)
class ModelNames:
    """What is known of models where a job is submitted.

    Attributes:
        served: models that workers have loaded; asked for only where nothing else decides.
        here: workers are on this machine, too, so that what is not here is nowhere.
        mirrored: another hub than the public one is asked, whose names may be of any form.
        cache: the folder of the hub's cache on this machine.
    """

    served: Callable[[], Collection[str]]
    here: bool = False
    mirrored: bool = field(default_factory=lambda: bool(os.environ.get("HF_ENDPOINT")))
    cache: Path = field(default_factory=lambda: hub_cache())

    def doubt(self, model: str) -> str | None:
        """What makes it doubtful that a worker finds a model; None if nothing does.

        Args:
            model: as `model_name` gives it: a path is absolute.

        Raises:
            UsageError: no worker can find it.
        """
        if model in MODEL_ALIASES:
            return None
        if Path(model).is_absolute():
            trouble = _trouble_with_path(Path(model))
        else:
            self._refuse_malformed(model)
            trouble = None if model in self._cached() else self._trouble_with_name(model)
        if trouble is None or model in self.served():
            return None
        if Path(model).is_absolute():
            if self.here:
                raise UsageError(f"--model: {trouble}")
            return f"{trouble}; only a worker on a machine that has it can answer"
        if "/" not in model and not self.mirrored:
            raise UsageError(
                f"--model: {trouble}. Name a folder by its path (./{model}), or a model of the hub "
                "as owner/name"
            )
        return (
            f"{trouble}. Whether it is on the hub was not asked; `pagemill pull {model}` asks, "
            "and brings it here"
        )

    def _refuse_malformed(self, model: str) -> None:
        """Refuse what is neither a path nor can be the name of a model on the hub."""
        if of_url := _HUB_URL.fullmatch(model):
            raise UsageError(f"--model is {model}; name a model of the hub so: {of_url[1]}")
        if "\\" in model or model.count("/") > 1 or model.endswith("/"):
            raise UsageError(
                f"--model: there is no folder {model} (seen from {Path.cwd()}), and a model of the "
                "hub is named owner/name; begin the path of a folder on a worker's machine with /"
            )
        if not all(_PART.fullmatch(part) for part in model.split("/")):
            raise UsageError(
                f"--model is {model!r}, which is no path on this machine and can be no model of "
                "the hub: owner/name, of letters, digits, dots, dashes and underscores"
            )

    def _trouble_with_name(self, model: str) -> str:
        others = [*MODEL_ALIASES, *self.served(), *self._cached()]
        found = f"no worker has served {model} yet, and it is not on this machine"
        return f"{found}{_meant(model, others)}"

    def _cached(self) -> list[str]:
        """Models of the hub that are in its cache on this machine, by the names of folders."""
        try:
            folders = [entry.name for entry in os.scandir(self.cache)]
        except OSError:
            return []
        kind = "models--"
        return [name[len(kind) :].replace("--", "/") for name in folders if name.startswith(kind)]


def hub_cache() -> Path:
    """Where the Hugging Face hub's cache is, by the variables that say so."""
    env = os.environ
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if folder := env.get(name):
            return Path(folder).expanduser()
    if home := env.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "huggingface" / "hub"


def _trouble_with_path(path: Path) -> str | None:
    if path.suffix.lower() in _WEIGHTS:
        return f"{path} would be a file of weights; name the folder that holds it"
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return None
        return f"{path} is a file, and no .gguf file; name the folder of a model"
    if not path.exists():
        beside = _meant(path.name, _beside(path))
        return f"there is no model {path} on this machine{beside}"
    if (path / "config.json").exists():
        return None
    if ggufs := sorted(path.glob("*.gguf")):
        return f"{path} holds .gguf files; name one of them, such as {ggufs[0]}"
    return f"{path} holds no model: there is no config.json in it"


def _beside(path: Path) -> list[str]:
    """Names in the folder that a path would be in."""
    try:
        return os.listdir(path.parent)
    except OSError:
        return []


def _meant(model: str, others: Iterable[str]) -> str:
    """A question that names what was perhaps meant; empty if nothing is much like it."""
    by_lower = {other.lower(): other for other in others}
    close = difflib.get_close_matches(model.lower(), by_lower, 1, _ALIKE)
    return f" (did you mean {by_lower[close[0]]}?)" if close else ""
