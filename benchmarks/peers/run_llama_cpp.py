"""llama.cpp's server on the GGUF file that the float32 model was converted from.

Its slots share no prefix by themselves: where primed, the common prefix is computed once in one
slot, saved, and restored into all.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from adapter import Generate, Options, Prime, Row, common_prefix, run

SLOTS = 32
CONTEXT = 65536  # of all slots together
START_SECONDS = 120


def load(options: Options) -> tuple[Generate, Prime]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    folder = tempfile.mkdtemp(prefix="slots-", dir=Path.cwd())  # `compare.py` removes it
    command = [str(options.environment / "build" / "bin" / "llama-server")]
    command += ["-m", str(options.environment / "model.gguf"), "--slot-save-path", folder]
    command += ["--host", "127.0.0.1", "--port", address.rsplit(":", 1)[1], "-ngl", "0"]
    command += ["-np", str(SLOTS), "-c", str(CONTEXT), "-b", "2048", "-ub", "512"]
    command += ["-t", str(options.threads), "-tb", str(options.threads)]
    server = subprocess.Popen(command)
    _wait_for(address, server)

    def generate(rows: list[Row]) -> list[list[int]]:
        try:
            with ThreadPoolExecutor(SLOTS) as pool:
                return list(pool.map(lambda row: _complete(address, row), rows))
        finally:
            server.terminate()
            server.wait()

    return generate, lambda rows: _prime(address, rows)


def _prime(address: str, rows: list[Row]) -> None:
    """Compute the prefix that all prompts share, and put it into every slot."""
    prefix = common_prefix(rows)
    if not prefix:
        return
    _complete(address, Row(prefix, 1), id_slot=0)
    _post(f"{address}/slots/0?action=save", {"filename": "prefix"})
    for slot in range(1, SLOTS):
        _post(f"{address}/slots/{slot}?action=restore", {"filename": "prefix"})


def _complete(address: str, row: Row, **others: Any) -> list[int]:
    body = {
        "prompt": row.ids,
        "n_predict": row.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": True,
        "return_tokens": True,
    }
    tokens: list[int] = _post(f"{address}/completion", body | others)["tokens"]
    return tokens


def _post(url: str, body: dict[str, Any]) -> Any:
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
        return json.load(answer)


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    """Until the model is loaded; SystemExit if the server ends, or takes too long."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    server.kill()
    raise SystemExit(f"llama-server was not ready (exit code {server.wait()})")


if __name__ == "__main__":
    run(load)
