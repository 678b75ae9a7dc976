"""`python -P -m worker.pull`: brings a model to this machine, as an engine would load it.

A process of its own, since `jobs` knows no hub. It tells how many bytes are here.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.loading.alias import ALIASES, find_alias, meant_alias
from engine.loading.checkpoint import read_tensors, weight_files
from engine.loading.gguf import convert_gguf, converted_folder, gguf_digest
from engine.loading.gguf_header import read_header, refuse_unsupported
from engine.loading.hub import UNWANTED, WANTED
from engine.models.read_config import read_model_config
from worker.telling import Refused, Tell, answer

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


def pull(request: Mapping[str, Any], tell: Tell) -> None:
    """Bring a model here.

    Args:
        request: `model`, and `revision`, which may be None.

    Raises:
        Refused: it cannot be had, or there is no room.
        ModelError: it is not of a kind that is served.
    """
    model = request["model"]
    try:
        _pull(model, request["revision"], tell)
    except Refused as error:
        if model in ALIASES or not (meant := meant_alias(model)) or Path(model).exists():
            raise
        raise Refused(error.kind, f"{error}; did you mean {meant}?") from error


def _pull(model: str, revision: str | None, tell: Tell) -> None:
    path = find_alias(model) if model in ALIASES else Path(model).expanduser()
    if path.exists():
        _local(path, model, revision, tell)
        return
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise Refused("hub", "HF_HUB_OFFLINE forbids the network: unset it to pull a model")
    if model.startswith(("/", ".", "~")):
        raise Refused("model", f"there is no file or folder {model}, and it is no name on the hub")
    from worker.pull_errors import in_words

    owner, _, rest = model.partition("/")
    name, _, file = rest.partition("/")
    repository = f"{owner}/{name}" if name else owner
    if file and not file.lower().endswith(".gguf"):
        raise Refused(
            "model", f"{model} is no model: name a repository (owner/name), or a .gguf file of one"
        )
    with in_words(repository, revision):
        _from_hub(repository, revision, file, tell)


def _local(path: Path, model: str, revision: str | None, tell: Tell) -> None:
    """A file in GGUF is converted, as the first start of a worker would; a folder is there."""
    if revision is not None:
        raise Refused("model", f"{model} is on this machine and has no revisions")
    folder, was_here = path, True
    if path.is_file():
        digest = gguf_digest(path)
        folder = converted_folder(path, digest)
        was_here = (folder / "config.json").is_file()
        if not was_here:
            tell("note", text=f"converting {path.name}, once")
        convert_gguf(path, digest)
    _check(folder)
    tell("pulled", path=str(folder), revision=None, was_here=was_here, files=0, bytes=0, fetched=0)


def _from_hub(name: str, revision: str | None, file: str, tell: Tell) -> None:
    from worker.pull_files import Amount, Cache
    from worker.pull_repository import Repository

    repository = Repository.look_up(name, revision)
    files = [repository.gguf(file)] if file else repository.wanted()
    cache = Cache(repository)
    was_here = all(map(cache.has, files))
    if not file and not was_here:
        _check_config(repository.name, repository.commit)
    cache.check_room(files)
    total = sum(each.size or 0 for each in files)
    tell("begun", files=len(files), bytes=total)
    amount = Amount(lambda here: tell("came", bytes=here))
    cache.fetch(files, amount)
    path = _linked(name, revision, file)
    if file:
        refuse_unsupported(read_header(path), path)
    else:
        _check(path)
    tell(
        "pulled", path=str(path), revision=repository.commit, was_here=was_here,
        files=len(files), bytes=total, fetched=amount.fetched,
    )  # fmt: skip


def _check_config(name: str, commit: str) -> None:
    """Refuse a model that is not served before its weights are fetched."""
    from huggingface_hub import hf_hub_download

    read_model_config(Path(hf_hub_download(name, "config.json", revision=commit)).parent)


def _linked(name: str, revision: str | None, file: str) -> Path:
    """Let the hub's client name what was fetched as it always does: it finds all of it there."""
    from huggingface_hub import hf_hub_download, snapshot_download

    if file:
        return Path(hf_hub_download(name, file, revision=revision))
    return Path(
        snapshot_download(name, revision=revision, allow_patterns=WANTED, ignore_patterns=UNWANTED)
    )


def _check(folder: Path) -> None:
    """See that an engine would load it, from the headers of its files."""
    read_model_config(folder)
    for _ in read_tensors(weight_files(folder)):
        continue
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise Refused(
            "model", f"{folder} has no tokenizer ({', '.join(_TOKENIZERS)}); add that of the model"
        )


def _hide(text: str) -> str:
    from worker.pull_errors import hide_secrets

    return hide_secrets(text)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    sys.exit(answer(pull, _hide))
