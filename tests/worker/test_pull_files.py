"""What a server sends that is not what the hub said."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.file_download import HfFileMetadata

from worker import pull_files
from worker.pull import pull
from worker.pull_files import Amount, Download
from worker.pull_repository import RemoteFile
from worker.telling import Refused

pytestmark = pytest.mark.quick

SIZE = 200_000
URL = "http://hub.test/org/tiny/resolve/main/model.safetensors"


class Endless:
    """A session whose answers have no end; `status` is that of all of them."""

    def __init__(self, status: int) -> None:
        self.status_code = status
        self.asked = 0

    @contextlib.contextmanager
    def stream(self, *_: Any, **__: Any) -> Iterator[Endless]:
        self.asked += 1
        yield self

    def iter_bytes(self, size: int) -> Iterator[bytes]:
        return itertools.repeat(b"x" * size)


def test_a_mistyped_alias_names_the_one_that_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("smolm2-135m", "org/smolm2-135m", "gpt2"):
        with pytest.raises(Refused, match="HF_HUB_OFFLINE") as caught:
            pull({"model": name, "revision": None}, lambda *_, **__: None)
        assert ("did you mean smollm2-135m?" in str(caught.value)) == (name == "smolm2-135m")
        assert caught.value.kind == "hub"


@pytest.mark.parametrize(("begun", "status"), [(0, 200), (1000, 206), (1000, 200)])
def test_a_file_that_does_not_end_where_the_hub_said_fills_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: int, status: int
) -> None:
    session = Endless(status)
    monkeypatch.setattr(pull_files, "get_session", lambda: session)
    monkeypatch.setattr(pull_files, "hf_raise_for_status", lambda _: None)
    found = HfFileMetadata("c" * 40, "e", URL, SIZE, None)
    path = tmp_path / "partial"
    path.write_bytes(b"x" * begun)
    amount = Amount(lambda _: None)
    with open(path, "ab") as file, pytest.raises(Refused, match="more came than the 200,000"):
        Download(URL, found).go_on(file, amount)
    assert session.asked == 1
    assert amount.fetched <= SIZE
    assert path.stat().st_size == 0


CONTENT = b'{"model_type": "llama"}'


@pytest.mark.parametrize(
    ("sha256", "git_id"),
    [
        (hashlib.sha256(CONTENT).hexdigest(), None),
        # What `git hash-object` says of it, in a repository of either kind.
        (None, "230d5f4da0da586aad26ead694ea67cd15bd6df1"),
        (None, hashlib.sha256(b"blob %d\0%b" % (len(CONTENT), CONTENT)).hexdigest()),
        (None, None),
    ],
)
def test_content_is_compared_with_the_hash_of_the_hub(
    tmp_path: Path, sha256: str | None, git_id: str | None
) -> None:
    path = tmp_path / "config.json"
    file = RemoteFile(path.name, None, sha256, git_id)
    path.write_bytes(CONTENT)
    assert not pull_files._is_damaged(path, file)
    path.write_bytes(CONTENT.replace(b"llama", b"lhama"))
    assert pull_files._is_damaged(path, file) == (file.sha256 is not None or git_id is not None)
