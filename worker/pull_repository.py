"""What a repository of the hub holds, and what of it an engine would load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from huggingface_hub import HfApi
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from engine.loading.hub import UNWANTED, WANTED
from worker.telling import Refused

_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf", re.IGNORECASE)
_SHOWN_FILES = 5


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository.

    Attributes:
        size: None where the hub does not say.
        sha256: of its content, of files in large storage.
        git_id: of its content as git counts it, of all others; None where the hub does not say.
    """

    name: str
    size: int | None
    sha256: str | None
    git_id: str | None = None


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at one commit."""

    name: str
    commit: str
    files: Mapping[str, RemoteFile]

    @classmethod
    def look_up(cls, name: str, revision: str | None) -> Repository:
        """Ask the hub; raises what its client raises."""
        info = HfApi().model_info(name, revision=revision, files_metadata=True)
        files = {
            found.rfilename: RemoteFile(
                found.rfilename,
                found.size,
                None if found.lfs is None else found.lfs.sha256,
                # Of a file in large storage it is that of the pointer to it.
                found.blob_id if found.lfs is None else None,
            )
            for found in info.siblings or ()
        }
        if info.sha is None:
            raise Refused("hub", f"the hub does not say which commit {name} is at")
        return cls(name, info.sha, files)

    def wanted(self) -> list[RemoteFile]:
        """The files that an engine downloads: configuration, tokenizer and safetensors.

        Raises:
            Refused: there are no weights among them, or none that are read.
        """
        names = list(
            filter_repo_objects(self.files, allow_patterns=WANTED, ignore_patterns=UNWANTED)
        )
        has_config = "config.json" in names
        if not has_config and "adapter_config.json" in names:
            raise self._refused(
                "is a LoRA adapter; merge it into its base model and name the merged folder"
            )
        if not any(name.endswith(".safetensors") for name in names):
            raise self._refused(self._what_else())
        if not has_config:
            raise self._refused("has weights but no config.json, without which none are loaded")
        return [self.files[name] for name in names]

    def gguf(self, file: str) -> RemoteFile:
        """A GGUF file.

        Raises:
            Refused: there is no such file, or it is a part of one.
        """
        if file not in self.files:
            raise self._refused(f"has no file {file}{self._ggufs()}")
        if _PART.search(file):
            raise self._refused(
                f"has {file} in several parts, which are not read; download all, and join them "
                "with llama-gguf-split --merge"
            )
        return self.files[file]

    def _what_else(self) -> str:
        """What there is in place of safetensors."""
        if ggufs := self._ggufs():
            return f"has no safetensors at its top{ggufs}"
        if any(name.endswith(_PICKLED) for name in self.files):
            return (
                "has only pickle weights (.bin, .pt), which are refused because loading them can "
                "run any code; convert them to safetensors"
            )
        return "holds no model: there are no safetensors at its top, and no GGUF files"

    def _ggufs(self) -> str:
        """The GGUF files that may be pulled, as the end of a sentence."""
        found = sorted(name for name in self.files if name.lower().endswith(".gguf"))
        if not found:
            return ""
        shown = "; ".join(f"pagemill pull {self.name}/{name}" for name in found[:_SHOWN_FILES])
        more = " …" if len(found) > _SHOWN_FILES else ""
        return f"; pull one of its GGUF files: {shown}{more}"

    def _refused(self, what: str) -> Refused:
        return Refused("model", f"the hub repository {self.name} {what}")
