"""A small input that unpacks to very much is refused, in bounded memory, and leaves nothing."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from jobs.errors import InputError, SettingsError
from jobs.reading.unpacking import MAX_UNPACKED_BYTES, USUAL_RATIO, UnpackedLimit
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.submission import Submission, prepare

MIB = 1 << 20
ROW = b'{"prompt": "%s"}\n' % (b"x" * 1000)
BLANK = b" " * 1023 + b"\n"

# A small file that becomes 4 MiB or more.
SMALL: dict[str, Callable[[Path], object]] = {
    "rows.jsonl.gz": lambda path: path.write_bytes(gzip.compress(ROW * 4200)),
    "rows.jsonl.zst": lambda path: path.write_bytes(zstandard.compress(ROW * 4200)),
    "blank.jsonl.gz": lambda path: path.write_bytes(gzip.compress(ROW + BLANK * 4096 + ROW)),
    "blank.jsonl.zst": lambda path: path.write_bytes(zstandard.compress(ROW + b" " * 4 * MIB)),
    "frames.jsonl.zst": lambda path: path.write_bytes(zstandard.compress(BLANK * 1024) * 5),
    "members.jsonl.gz": lambda path: path.write_bytes(gzip.compress(BLANK * 1024) * 5),
    "rows.parquet": lambda path: pq.write_table(pa.table({"prompt": ["x" * 1000] * 4200}), path),
    "carried.parquet": lambda path: pq.write_table(
        pa.table({"prompt": ["x"] * 4200, "mine": ["y" * 1000] * 4200}), path
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", SMALL)
def test_what_unpacks_to_over_the_limit_is_refused(tmp_path: Path, name: str) -> None:
    path, storage = tmp_path / name, Storage(str(tmp_path / "storage"))
    SMALL[name](path)
    assert path.stat().st_size * USUAL_RATIO < 2 * MIB
    with pytest.raises(InputError, match=rf"{name} unpacks to over 2,097,152 bytes"):
        prepare(Submission(str(path), "m"), storage, max_unpacked=2 * MIB)
    assert storage.folders() == []
    if "frames" in name or "members" in name:
        return  # nothing but blank lines
    assert prepare(Submission(str(path), "m"), storage, max_unpacked=8 * MIB).plan.total_rows > 0


@pytest.mark.quick
def test_a_large_input_may_unpack_to_ten_times_its_size(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "storage"))
    noise = (os.urandom(300).hex().encode() for _ in range(1000))
    rows = b"".join(b'{"prompt": "%s"}\n' % text for text in noise)
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(rows))
    assert len(rows) > 1000
    assert prepare(Submission(str(path), "m"), storage, max_unpacked=1000).plan.total_rows == 1000
    assert UnpackedLimit.of("a", None, 7).most == 7
    assert UnpackedLimit.of("a", 100, 7).most == 1000


@pytest.mark.quick
def test_plain_lines_are_as_large_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(ROW * 10)
    prepare(Submission(str(path), "m"), Storage(str(tmp_path / "storage")), max_unpacked=1)


@pytest.mark.quick
def test_the_limit_is_a_setting() -> None:
    assert Settings.from_env({}).max_unpacked_bytes == MAX_UNPACKED_BYTES
    settings = Settings.from_env({"PAGEMILL_MAX_UNPACKED_BYTES": "1000"})
    assert settings.max_unpacked_bytes == 1000
    assert Settings.from_env(settings.to_env()) == settings
    for text in ("64GB", "0", "-1", "1.5"):
        with pytest.raises(SettingsError, match="must be"):
            Settings.from_env({"PAGEMILL_MAX_UNPACKED_BYTES": text})


def test_a_bomb_of_a_hundred_gigabytes(tmp_path: Path) -> None:
    """With the real command; memory is that of the process itself."""
    frame = zstandard.compress(BLANK * (256 << 10))
    bomb = tmp_path / "bomb.jsonl.zst"
    bomb.write_bytes(zstandard.compress(ROW) + frame * 400)
    assert bomb.stat().st_size * 1000 < 400 * 256 * MIB
    env = {
        **os.environ,
        "PAGEMILL_HOME": str(tmp_path),
        "PAGEMILL_DATABASE_URL": "",
        "PAGEMILL_STORAGE_URL": "",
        "PAGEMILL_MAX_UNPACKED_BYTES": str(256 * MIB),
    }
    code = (
        "import atexit, sys\n"
        "from pathlib import Path\n"
        "def peak():\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    (line,) = (line for line in lines if line.startswith('VmHWM:'))\n"
        "    print('peak', line.split()[1], file=sys.stderr)\n"
        "atexit.register(peak)\n"
        "from jobs.__main__ import main\n"
        f"sys.argv = ['pagemill', 'submit', {str(bomb)!r}, '--model', 'm']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 65, done.stderr
    assert "unpacks to over 268,435,456 bytes" in done.stderr
    assert "allow more by PAGEMILL_MAX_UNPACKED_BYTES" in done.stderr
    peak = int(done.stderr.split("peak ")[1]) * 1024
    assert peak < 512 * MIB
    assert Storage(str(tmp_path / "storage")).folders() == []
