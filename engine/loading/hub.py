"""Models of the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from engine.errors import ModelNotFound
from engine.startup import tell

# Never pickle weights; the top folder only (others hold the same weights in other formats).
WANTED = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
UNWANTED = ["*/*", "consolidated*.safetensors"]


def download(name: str) -> tuple[Path, str]:
    """Download a repository, or find it in the hub's cache.

    Returns:
        Its folder, and the commit that it holds.

    Raises:
        ModelNotFound: absent, private, gated, or out of reach; the message says what to do.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    tell("downloading the model from the hub")
    try:
        folder = Path(snapshot_download(name, allow_patterns=WANTED, ignore_patterns=UNWANTED))
    except GatedRepoError as error:
        raise ModelNotFound(
            f"{name} is gated: accept its terms at https://huggingface.co/{name}, then set "
            "HF_TOKEN to a token of that account"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(
            f"there is no folder {name} here and no model {name} on the Hugging Face hub; check "
            "the spelling, and set HF_TOKEN if the model is private"
        ) from error
    except LocalEntryNotFoundError as error:
        raise ModelNotFound(
            f"{name} is not in the hub's local cache and the hub cannot be reached; check the "
            "network, unset HF_HUB_OFFLINE if it is set, or name a local folder or .gguf file"
        ) from error
    except Exception as error:  # whatever the hub's transport of the day raises
        raise ModelNotFound(f"{name} could not be downloaded from the hub: {error}") from error
    return folder, folder.name
