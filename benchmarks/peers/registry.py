"""The engines that `compare.py` knows, and where their environments are."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from worker.engine_process import PATIENT_THREADS

HERE = Path(__file__).parent


def peers_folder() -> Path:
    """Folder of the peers' environments: `.peers` in the repository, or `PAGEMILL_PEERS`."""
    return Path(os.environ.get("PAGEMILL_PEERS") or HERE.parents[1] / ".peers").absolute()


@dataclass(frozen=True)
class Peer:
    """One engine in one of its ways to run.

    Attributes:
        script: its adapter in this folder.
        environment: folder of its environment below `peers_folder()`; None runs it in ours.
        options: what its adapter is given beside the workload.
        slow: runs once and on a subset, beside a run of pagemill on the same.
        variables: environment variables with which it runs; `{environment}` is the folder.
    """

    name: str
    script: str
    environment: str | None = None
    options: tuple[str, ...] = ()
    slow: bool = False
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        return peers_folder() / (self.environment or "")

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python" if self.environment else Path(sys.executable)

    @property
    def missing(self) -> str | None:
        """What to do where the environment is not there (complete), else None."""
        if self.environment is None or (self.folder / ".ready").exists():
            return None
        return f"{self.name} is not set up in {self.folder}; run: make peer-{self.environment}"

    def command(self) -> list[str]:
        script = str(HERE / self.script)
        return [str(self.python), script, "--environment", str(self.folder), *self.options]

    def environ(self) -> dict[str, str]:
        return {name: text.format(environment=self.folder) for name, text in self.variables}


# As a worker starts its engine.
_ENGINE = tuple(PATIENT_THREADS.items())
PAGEMILL = Peer("pagemill", "run_pagemill.py", variables=_ENGINE)
# One prompt at a time without padding or batching: what the others' tokens are compared with.
REFERENCE = Peer("reference", "run_transformers.py", options=("--method", "one-by-one"))
PEERS = (
    Peer(
        "pagemill-float16-cache",  # as OpenVINO keeps it, whatever the weights are
        "run_pagemill.py",
        options=("--kv-cache-dtype", "float16"),
        variables=_ENGINE,
    ),
    Peer("openvino-primed", "run_openvino.py", "openvino", ("--primed",)),
    Peer("openvino", "run_openvino.py", "openvino"),
    Peer(
        "vllm",
        "run_vllm.py",
        "vllm",
        variables=(
            ("VLLM_CPU_KVCACHE_SPACE", "4"),
            ("VLLM_CPU_NUM_OF_RESERVED_CPU", "0"),
            ("LD_PRELOAD", "{environment}/libtcmalloc.so {environment}/libiomp5.so"),
        ),
    ),
    Peer(
        "transformers-generate-batch",
        "run_transformers.py",
        options=("--method", "generate_batch"),
        slow=True,
    ),
    Peer(
        "transformers-generate", "run_transformers.py", options=("--method", "generate"), slow=True
    ),
    Peer("llama.cpp", "run_llama_cpp.py", "llama-cpp", ("--primed",), slow=True),
)
BY_NAME = {peer.name: peer for peer in PEERS}
