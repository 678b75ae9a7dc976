"""`pagemill pull` from a hub that speaks the real one's language: whole, cut, killed, refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.child import child
from tests.support.fake_hub import FakeHub, serving
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_model import build_tiny_model, randomize

ROOT = Path(__file__).parents[2]
NAME = "org/tiny"
TOKEN, SIGNATURE = "hf_averysecrettoken", "signed-secret"
LOAD = """
import sys
from engine.loading import load_model, resolve_model
from worker.prompts import PromptEncoder
files = resolve_model(sys.argv[1])
encoder = PromptEncoder(str(files.path))
loaded = load_model(files, device="cpu")
print(len(encoder.encode_prompts(["hello"])[0]), loaded.config.num_layers, files.revision)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that holds more than is loaded."""
    folder = build_tiny_model(tmp_path_factory.mktemp("source"), hidden_size=64)
    (folder / "pytorch_model.bin").write_bytes(b"pickled" * 1000)
    (folder / "modeling_tiny.py").write_text("raise SystemExit")
    (folder / "README.md").write_text("# tiny")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    return folder


@pytest.fixture
def hub(source: Path) -> Iterator[FakeHub]:
    with serving() as made:
        made.folders[NAME] = source
        yield made


class Puller:
    """`pagemill pull` with a hub's cache of its own."""

    def __init__(self, home: Path, endpoint: str) -> None:
        self.cache = home / "hf" / "hub"
        self.home = home
        self._started = ExitStack()
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("HF_", "PAGEMILL_"))},
            "HF_HOME": str(home / "hf"), "HF_ENDPOINT": endpoint, "HF_TOKEN": TOKEN,
            "PAGEMILL_CACHE_DIR": str(home / "cache"), "PYTHONWARNINGS": "default",
            "PYTHONPATH": f"{home / 'site'}:{ROOT}",
        }  # fmt: skip

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = child(
            [sys.executable, "-P", "-m", "jobs", "pull", *arguments],
            env=self.env, cwd=self.home, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        return self._started.enter_context(process)

    def close(self) -> None:
        """End what a failed test has left."""
        self._started.close()

    def __call__(self, *arguments: str, expect: int = 0) -> tuple[str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=240)
        assert process.returncode == expect, (process.returncode, out, err)
        for secret in (TOKEN, SIGNATURE, "endpoint-secret"):
            assert secret not in out + err
        return out, err

    def json(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*arguments, "--json")[0])
        return found

    def refused(self, *arguments: str, code: int) -> str:
        """The one line that is told; nothing is on stdout."""
        out, err = self(*arguments, expect=code)
        assert out == ""
        line = err.splitlines()[-1]
        assert line.startswith("Error: ")
        return line

    def in_every_process(self, code: str) -> None:
        (self.home / "site").mkdir()
        (self.home / "site" / "sitecustomize.py").write_text(code)


@pytest.fixture
def pull(tmp_path: Path, hub: FakeHub) -> Iterator[Puller]:
    with closing(Puller(tmp_path, hub.url)) as puller:
        yield puller


# ---- what is fetched


def test_only_what_is_loaded_is_fetched_and_a_worker_finds_it_offline(
    pull: Puller, hub: FakeHub, source: Path
) -> None:
    out, err = pull(NAME)

    folder = Path(out.strip())
    assert {path.name for path in folder.iterdir()} == {
        "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    for path in folder.iterdir():
        assert path.read_bytes() == (source / path.name).read_bytes()
    assert f"serve it:  pagemill worker --model {NAME}" in err
    assert {asked.token for asked in hub.asked if asked.storage} == {None}  # a token for the hub
    assert {asked.token for asked in hub.asked if "/resolve/" in asked.path} == {f"Bearer {TOKEN}"}
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, NAME], env={**pull.env, "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.split() == ["5", "2", hub.commit(NAME)]

    hub.asked.clear()
    found = pull.json(NAME)

    assert found == {
        "model": NAME, "path": str(folder), "revision": hub.commit(NAME), "was_here": True,
        "files": 6, "bytes": sum(path.stat().st_size for path in folder.iterdir()), "fetched": 0,
    }  # fmt: skip
    assert not [asked for asked in hub.asked if "/resolve/" in asked.path]


def test_a_revision_is_served_by_its_folder(pull: Puller, hub: FakeHub) -> None:
    commit = hub.commit(NAME)
    out, err = pull(NAME, "--revision", commit)
    assert out.strip().endswith(f"/snapshots/{commit}")
    assert f"--model {out.strip()}" in err
    assert f"{NAME} has no revision 'no-such'" in pull.refused(
        NAME, "--revision", "no-such", code=3
    )


# ---- interruptions


def partial(pull: Puller, source: Path) -> Path:
    """What came so far of the weights."""
    digest = hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()
    return pull.cache / "models--org--tiny" / "blobs" / f"{digest}.pagemill.incomplete"


def cut_in_the_middle(pull: Puller, hub: FakeHub, number: int, begun: Path) -> tuple[int, str]:
    """Send a signal when half of the weights are there; the exit code, and what was said."""
    hub.held.clear()
    process = pull.start(NAME)
    assert hub.in_the_middle.wait(120)
    deadline = time.monotonic() + 60
    while not begun.exists() or not begun.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert out == ""
    hub.held.set()
    hub.asked.clear()
    return process.returncode, err


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=["kill", "ctrl-c", "term"],
)
def test_after_a_kill_only_the_rest_is_fetched(
    pull: Puller, hub: FakeHub, source: Path, number: int, code: int
) -> None:
    left = partial(pull, source)
    ended, err = cut_in_the_middle(pull, hub, number, left)
    assert ended == code
    assert "Traceback" not in err
    assert ("What came so far is kept" in err) == (number == signal.SIGINT)
    begun, whole = left.stat().st_size, (source / "model.safetensors").stat().st_size
    assert 0 < begun < whole

    found = pull.json(NAME)

    (asked,) = hub.gets("model.safetensors")
    start = int((asked.range or "").removeprefix("bytes=").partition("-")[0])
    assert start >= begun  # the killed one may have written on for a moment
    assert found["fetched"] < found["bytes"] - start + 1
    path = Path(found["path"]) / "model.safetensors"
    assert path.read_bytes() == (source / "model.safetensors").read_bytes()
    assert not list(pull.cache.glob("*/blobs/*.incomplete"))


def test_a_connection_that_breaks_is_taken_up_again(
    pull: Puller, hub: FakeHub, source: Path
) -> None:
    hub.cut_after = 150_000
    folder = Path(pull(NAME)[0].strip())
    asked = hub.gets("model.safetensors")
    assert len(asked) > 1
    assert all(again.range for again in asked[1:])
    name = "model.safetensors"
    assert (folder / name).read_bytes() == (source / name).read_bytes()


def test_two_at_once_fetch_a_file_once(pull: Puller, hub: FakeHub) -> None:
    hub.held.clear()
    both = [pull.start(NAME) for _ in range(2)]
    assert hub.in_the_middle.wait(120)
    hub.held.set()
    told = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert told[0][0] == told[1][0]
    assert len(hub.gets("model.safetensors")) == 1


def test_what_came_damaged_is_not_kept(pull: Puller, hub: FakeHub) -> None:
    hub.spoil = True
    assert "model.safetensors of org/tiny came damaged" in pull.refused(NAME, code=69)
    assert not list(pull.cache.glob("*/blobs/*.incomplete"))
    hub.spoil = False
    pull(NAME)


def test_a_small_file_that_is_not_what_the_hub_said_is_not_kept(pull: Puller, hub: FakeHub) -> None:
    """A proxy that answers in place of the hub, say; the size is right."""
    hub.lies = {"tokenizer.json"}
    assert "tokenizer.json of org/tiny came damaged" in pull.refused(NAME, code=69)
    assert not list(pull.cache.glob("*/blobs/*.incomplete"))
    assert not list(pull.cache.glob("*/snapshots/*/tokenizer.json"))
    hub.lies = set()
    pull(NAME)


# ---- refusals


def test_models_that_are_not_there_or_not_given_out(pull: Puller, hub: FakeHub) -> None:
    assert "there is no model org/none at" in pull.refused("org/none", code=3)
    hub.refusals[NAME] = (403, "GatedRepo")
    gated = pull.refused(NAME, code=3)
    assert f"is gated: accept its terms at {hub.url}/{NAME}, then set HF_TOKEN" in gated
    hub.refusals[NAME] = (403, "")
    assert "does not take the token" in pull.refused(NAME, code=3)
    hub.refusals[NAME] = (404, "RepoNotFound")
    assert "HF_TOKEN is not of an account that may read it" in pull.refused(NAME, code=3)
    del pull.env["HF_TOKEN"]
    assert "set HF_TOKEN to a token" in pull.refused(NAME, code=3)
    hub.refusals[NAME] = (400, "")
    assert "answers 400" in pull.refused(NAME, code=69)
    assert not list(pull.cache.glob("*/blobs/*"))


def test_a_private_model_needs_its_token(pull: Puller, hub: FakeHub) -> None:
    hub.token = TOKEN
    pull(NAME)
    pull.env["HF_TOKEN"] = "hf_another"
    assert "is not of an account" in pull.refused(NAME, code=3)


def test_no_network(pull: Puller) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        pull.env["HF_ENDPOINT"] = f"http://me:endpoint-secret@127.0.0.1:{closed.getsockname()[1]}"
        told = pull.refused(NAME, code=69)
    assert "cannot be reached" in told
    assert "check the network" in told
    pull.env["HF_HUB_OFFLINE"] = "1"
    assert "HF_HUB_OFFLINE forbids the network" in pull.refused(NAME, code=69)


def test_a_disk_that_is_too_small(pull: Puller, hub: FakeHub, source: Path) -> None:
    """Told before anything large is fetched, or where it fills up all the same."""
    pull.in_every_process(
        "import shutil\n"
        "usage = shutil.disk_usage\n"
        "shutil.disk_usage = lambda path: usage(path)._replace(free=10_000)"
    )
    assert "needs 0.00 GB more, and there are 0.00 GB free" in pull.refused(NAME, code=74)
    assert not hub.gets("model.safetensors")
    (pull.home / "site" / "sitecustomize.py").write_text(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    )
    assert "is full: make room" in pull.refused(NAME, code=74)
    begun = partial(pull, source).stat().st_size
    assert begun > 0
    (pull.home / "site" / "sitecustomize.py").unlink()
    hub.asked.clear()
    pull(NAME)
    assert [asked.range for asked in hub.gets("model.safetensors")] == [f"bytes={begun}-"]


def test_repositories_without_weights_that_are_loaded(
    pull: Puller, hub: FakeHub, source: Path, tmp_path: Path
) -> None:
    def repository(name: str, *kept: str, **made: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        for file in kept:
            shutil.copy(source / file, folder)
        for file, text in made.items():
            (folder / file.replace("__", ".")).write_text(text)
        hub.folders[f"org/{name}"] = folder
        return f"org/{name}"

    pickled = repository("pickled", "config.json", "pytorch_model.bin")
    assert "only pickle weights" in pull.refused(pickled, code=3)
    lora = repository("lora", "tokenizer.json", adapter_config__json="{}", adapter__safetensors="x")
    assert "is a LoRA adapter" in pull.refused(lora, code=3)
    empty = repository("empty", "README.md")
    assert "holds no model" in pull.refused(empty, code=3)
    bare = repository("bare", "model.safetensors")
    assert "no config.json" in pull.refused(bare, code=3)
    gguf = repository("gguf", README__md="x", a__gguf="x", b__gguf="x")
    told = pull.refused(gguf, code=3)
    assert "pagemill pull org/gguf/a.gguf; pagemill pull org/gguf/b.gguf" in told
    assert "has no file c.gguf" in pull.refused("org/gguf/c.gguf", code=3)
    other = repository(
        "other", "model.safetensors", config__json=json.dumps({"architectures": ["FooForBar"]})
    )
    told = pull.refused(other, code=3)
    assert "the architecture 'FooForBar' is not supported; supported are LlamaForCausalLM" in told
    assert not hub.gets(".safetensors")
    blunt = repository("blunt", "model.safetensors", "config.json")
    assert "has no tokenizer" in pull.refused(blunt, code=3)
    for name, told in (("a/b/c", "is no model"), ("./nowhere", "no file or folder"), ("a b", "")):
        assert told in pull.refused(name, code=3)


# ---- GGUF, and what is here


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("gguf")
    source = build_tiny_model(folder / "source", vocab_size=261)
    path = folder / "files" / "tiny-F32.gguf"
    path.parent.mkdir()
    write_tiny_gguf(path, randomize(source), AutoTokenizer.from_pretrained(source))
    shutil.copy(path, path.with_name("big-00001-of-00002.gguf"))
    return path


def test_a_gguf_file_is_fetched_alone_and_served_by_its_path(
    pull: Puller, hub: FakeHub, gguf: Path
) -> None:
    hub.folders["org/files"] = gguf.parent

    found = pull.json("org/files/tiny-F32.gguf")

    path = Path(found["path"])
    assert (path.name, path.read_bytes()) == (gguf.name, gguf.read_bytes())
    assert (found["files"], found["fetched"]) == (1, gguf.stat().st_size)
    assert "in several parts" in pull.refused("org/files/big-00001-of-00002.gguf", code=3)
    out, err = pull(str(path))  # converted, as the first start of a worker would
    assert "converting tiny-F32.gguf, once" in err
    assert (Path(out.strip()) / "model.safetensors").exists()
    assert pull(str(path)) == (
        out,
        f"{path} is here already\nserve it:  pagemill worker --model {path}\n",
    )
    assert "has no revisions" in pull.refused(str(path), "--revision", "main", code=3)


def test_the_packaged_model_is_prepared_or_said_to_be_there(pull: Puller) -> None:
    del pull.env["PAGEMILL_CACHE_DIR"]  # where other tests have it, too
    pull("smollm2-135m")
    found = pull.json("smollm2-135m")
    assert found["was_here"] is True
    assert (Path(found["path"]) / "config.json").exists()
