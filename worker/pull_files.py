"""Files of the hub on their way into its cache.

The hub's client begins a file anew after each interruption. Here what came of it stays, under a
name that is the same the next time, and only the rest is asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from huggingface_hub import constants, get_hf_file_metadata, get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import HfFileMetadata, repo_folder_name
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    WeakFileLock,
    build_hf_headers,
    hf_raise_for_status,
)

from jobs.doctor.disks import existing
from worker.pull_repository import RemoteFile, Repository
from worker.telling import Refused

_AT_ONCE = 4  # files
_PIECE = 1 << 16
_TRIES = 5  # one after the other that bring nothing
_PAUSE_SECONDS = 1.0
_TELL_SECONDS = 0.1
_PARTIAL = ".pagemill.incomplete"
_SHA256_DIGITS = 64


class Amount:
    """Bytes that are here by now; tells of it now and then.

    Attributes:
        fetched: those that came over the network.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._told_at = 0.0
        self.here = self.fetched = 0

    def add(self, size: int, *, fetched: bool) -> None:
        with self._lock:
            self.here += size
            self.fetched += size if fetched else 0
            now = time.monotonic()
            if now - self._told_at < _TELL_SECONDS:
                return
            self._told_at = now
            self._tell(self.here)


class Cache:
    """The place of a repository in the hub's cache."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._root = Path(constants.HF_HUB_CACHE)
        name = repo_folder_name(repo_id=repository.name, repo_type="model")
        self._folder, self._locks = self._root / name, self._root / ".locks" / name

    def has(self, file: RemoteFile) -> bool:
        """Whether a file is there, of this commit."""
        return (self._folder / "snapshots" / self._repository.commit / file.name).exists()

    def check_room(self, files: Sequence[RemoteFile]) -> None:
        """See that there is room for what is still to come.

        Raises:
            Refused: there is not.
        """
        missing = sum(file.size or 0 for file in files if not self.has(file))
        begun = sum(path.stat().st_size for path in (self._folder / "blobs").glob(f"*{_PARTIAL}"))
        free = shutil.disk_usage(existing(self._root.absolute())).free
        if missing - begun > free:
            raise Refused(
                "storage",
                f"{self._repository.name} needs {(missing - begun) / 1e9:,.2f} GB more, and "
                f"there are {free / 1e9:,.2f} GB free on the disk of {self._root}: make room, or "
                "set HF_HOME to a folder on another disk",
            )

    def fetch(self, files: Sequence[RemoteFile], amount: Amount) -> None:
        """Bring the content of files into the cache, several at once; raises the first error."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            fetching = [threads.submit(self._fetch, file, amount) for file in files]
            try:
                for each in as_completed(fetching):
                    each.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _fetch(self, file: RemoteFile, amount: Amount) -> None:
        if self.has(file):
            amount.add(file.size or 0, fetched=False)
            return
        url = hf_hub_url(self._repository.name, file.name, revision=self._repository.commit)
        found = get_hf_file_metadata(url)
        # It names the file in the cache, and must not lead out of it.
        if found.commit_hash is None or not re.fullmatch(r"\w[\w.-]*", found.etag or ""):
            raise Refused(
                "hub",
                f"what answers at {constants.ENDPOINT} is no hub of models; check HF_ENDPOINT and "
                "the proxy",
            )
        blob = self._folder / "blobs" / str(found.etag)
        for folder in (blob.parent, self._locks):
            folder.mkdir(parents=True, exist_ok=True)
        # The lock that the client takes, too.
        with WeakFileLock(self._locks / f"{found.etag}.lock"):
            if blob.exists():
                amount.add(file.size or 0, fetched=False)
            else:
                self._complete(file, blob, Download(url, found), amount)

    def _complete(self, file: RemoteFile, blob: Path, download: Download, amount: Amount) -> None:
        """Fetch what is missing of a file, and give it its name when it is whole."""
        partial = blob.with_name(blob.name + _PARTIAL)
        with open(partial, "ab") as opened:
            begun = opened.tell()
            if download.size is not None and begun > download.size:
                opened.truncate(begun := 0)
            amount.add(begun, fetched=False)
            download.go_on(opened, amount)
            opened.flush()
            os.fsync(opened.fileno())
        if _is_damaged(partial, file):
            partial.unlink()
            raise Refused(
                "hub",
                f"{file.name} of {self._repository.name} came damaged: its content is not what "
                "the hub says. It was removed; pull again",
            )
        os.replace(partial, blob)


class Download:
    """A file that is fetched from where it was left, as often as the connection breaks.

    Args:
        url: of the file on the hub.
        found: what the hub says of it.
    """

    def __init__(self, url: str, found: HfFileMetadata) -> None:
        self._url = url
        self._location = found.location
        self.size = found.size

    def go_on(self, file: BinaryIO, amount: Amount) -> None:
        """Append the rest to a file; raises what stands in the way, after some tries in vain."""
        tries = 0
        while True:
            begun = file.tell()
            try:
                return self._append(file, amount)
            except Exception as error:
                tries = tries + 1 if file.tell() <= begun else 1
                if tries > _tries_after(error):
                    raise
            time.sleep(_PAUSE_SECONDS)
            # What the hub sends us to is signed, and not valid for ever.
            self._location = get_hf_file_metadata(self._url).location

    def _append(self, file: BinaryIO, amount: Amount) -> None:
        begun = file.tell()
        if begun == self.size:
            return
        # The token is for the hub, and for nobody that it sends us to.
        same = urlsplit(self._url).netloc == urlsplit(self._location).netloc
        headers = {
            **build_hf_headers(token=None if same else False), "Accept-Encoding": "identity",
        }  # fmt: skip
        if begun:
            headers["Range"] = f"bytes={begun}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream(
            "GET", self._location, headers=headers, timeout=timeout
        ) as response:
            hf_raise_for_status(response)
            if begun and response.status_code == 200:  # all of it comes again
                file.truncate(0)
                amount.add(-begun, fetched=False)
            for piece in response.iter_bytes(_PIECE):
                if self.size is not None and file.tell() + len(piece) > self.size:
                    # It may go on until the disk is full.
                    file.truncate(0)
                    raise Refused(
                        "hub",
                        f"more came than the {self.size:,} bytes that the hub says the file has; "
                        "what came was removed; check HF_ENDPOINT and the proxy, and pull again",
                    )
                file.write(piece)
                amount.add(len(piece), fetched=True)
        if self.size is not None and file.tell() != self.size:
            raise ConnectionError(f"{file.tell()} of {self.size} bytes came")


def _tries_after(error: Exception) -> int:
    """How often it may end so, one time after the other, before it is told."""
    if isinstance(error, HfHubHTTPError):
        # A refusal may be of a signature that is no longer valid, and that a new one replaces.
        return _TRIES if error.response.status_code >= 500 else 1
    if isinstance(error, Refused):
        return 0
    on_disk = isinstance(error, OSError) and error.errno is not None
    return 0 if on_disk else _TRIES


def _is_damaged(path: Path, file: RemoteFile) -> bool:
    """Whether its content is not that of which the hub gave the hash."""
    if file.sha256 is not None:
        return _digest(path, hashlib.sha256()) != file.sha256
    if file.git_id is None:
        return False
    # A repository of git is of one kind of hash or of the other.
    digest = hashlib.sha256() if len(file.git_id) == _SHA256_DIGITS else hashlib.sha1()
    digest.update(b"blob %d\0" % path.stat().st_size)
    return _digest(path, digest) != file.git_id


def _digest(path: Path, begun: hashlib._Hash) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: begun).hexdigest()
