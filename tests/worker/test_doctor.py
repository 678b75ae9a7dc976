"""What `worker.doctor` says of torch, packages and model files."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.loading.alias import ALIASES
from jobs.doctor.findings import Finding, Level
from jobs.model_aliases import MODEL_ALIASES
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_model import build_tiny_model, randomize
from worker import doctor, doctor_devices, doctor_packages
from worker.doctor_model import check_model


def only(found: object, level: Level, *words: str) -> Finding:
    finding: Finding
    (finding,) = found  # type: ignore[misc]
    assert finding.level is level, finding
    assert all(word in f"{finding.found} {finding.advice}" for word in words), finding
    return finding


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("PAGEMILL_CACHE_DIR", str(tmp_path / "cache"))
    room = shutil.disk_usage("/")._replace(free=100 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)


# ---- models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"))


def test_a_folder_that_is_whole(folder: Path) -> None:
    only(check_model(str(folder)), Level.OK, "safetensors", "tensors in 1 files", "layers")


def test_a_folder_that_lacks_something(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for path in tmp_path.glob("tokenizer*"):
        path.unlink()
    only(check_model(str(tmp_path)), Level.FAULT, "no tokenizer")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    only(check_model(str(tmp_path)), Level.FAULT, "not a whole safetensors file")
    weights.rename(tmp_path / "pytorch_model.bin")
    only(check_model(str(tmp_path)), Level.FAULT, "pickle")


def test_a_gguf_file_is_read_and_not_converted(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    path, source = tmp_path / "tiny.gguf", tmp_path / "source"
    build_tiny_model(source, vocab_size=261)
    write_tiny_gguf(path, randomize(source), AutoTokenizer.from_pretrained(source))
    only(check_model(str(path)), Level.OK, "GGUF, llama")
    assert not (tmp_path / "cache").exists()
    path.write_bytes(b"GGUF nonsense")
    only(check_model(str(path)), Level.FAULT, str(path))


def test_names_of_nothing(tmp_path: Path) -> None:
    only(check_model(str(tmp_path / "none")), Level.FAULT, "no such file or folder")
    only(check_model("no model at all"), Level.FAULT, "cannot be a Hugging Face id")


def test_jobs_know_every_alias() -> None:
    assert MODEL_ALIASES.keys() == ALIASES.keys()


def test_a_mistyped_alias_names_the_one_that_was_meant(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "worker.doctor", "--model", "smolm2-135m"],
        env={**os.environ, "HF_HOME": str(tmp_path)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found[-1]["name"] == "model"
    assert "did you mean smollm2-135m?" in found[-1]["found"]


@pytest.mark.parametrize("offline", [False, True])
def test_a_model_of_the_hub_that_is_not_here(tmp_path: Path, offline: bool) -> None:
    """Nothing is downloaded. The hub's client reads its settings once in a process."""
    env = {**os.environ, "HF_HOME": str(tmp_path), **({"HF_HUB_OFFLINE": "1"} if offline else {})}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "worker.doctor", "--model", "org/none"],
        env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [f["name"] for f in found][-1] == "model"
    assert found[-1]["level"] == ("fault" if offline else "warning")
    assert "cache" in found[-1]["found"]
    names = {"packages", "kernels", "torch", "triton", "cpu kernels", "cache", "model"}
    assert {f["name"] for f in found} - {"gpu"} == names


# ---- packages


def test_packages_that_are_well() -> None:
    only(doctor_packages.check_packages(), Level.OK, "torch ", "transformers ")


def test_packages_that_are_missing_or_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor_packages, "requires",
        lambda _: ["torch>=99", "no-such-thing", "nor-this; extra == 'dev'", "typer>=0.1"],
    )  # fmt: skip
    finding = only(doctor_packages.check_packages(), Level.FAULT, "torch is ", "must be >=99")
    assert "no-such-thing is missing" in finding.found
    assert "nor-this" not in finding.found
    assert "typer" not in finding.found


def test_the_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    only(doctor_packages.check_kernels(), Level.OK, "pagemill's own")
    monkeypatch.setattr(doctor_packages, "version", lambda name: "0.18.1")
    only(doctor_packages.check_kernels(), Level.WARNING, "0.18.1", "pip uninstall kernels")

    def refuse() -> None:
        raise EngineError("gives /elsewhere")

    monkeypatch.setattr("engine.house.check_kernels_package", refuse)
    only(doctor_packages.check_kernels(), Level.FAULT, "/elsewhere", "pip uninstall kernels")


def test_a_package_that_is_not_installed_is_known_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor_packages, "requires", missing)
    only(doctor_packages.check_packages(), Level.WARNING, "not installed")
    assert doctor_packages.range_of("triton") is None


def test_a_cache_that_may_not_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    only(doctor_packages.check_cache(), Level.OK, str(tmp_path / "cache"), "GiB free")
    monkeypatch.setattr(os, "access", lambda *_: False)
    only(doctor_packages.check_cache(), Level.FAULT, "cannot be written", "PAGEMILL_CACHE_DIR")


# ---- devices


def test_triton_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    only(doctor_devices.check_triton(), Level.OK, importlib.metadata.version("triton"))
    monkeypatch.setattr(doctor_devices, "version", lambda _: "3.0.0")
    only(doctor_devices.check_triton(), Level.WARNING, "it is 3.0.0", ">=3.6")


def test_a_gpu_needs_triton_and_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("CC", sys.executable)
    only(doctor_devices.check_triton(), Level.OK)
    monkeypatch.setenv("CC", str(tmp_path / "no-compiler"))
    only(doctor_devices.check_triton(), Level.FAULT, "no C compiler", "gcc")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    only(doctor_devices.check_triton(), Level.FAULT, "missing")


def test_a_driver_that_torch_cannot_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    driver = tmp_path / "version"
    monkeypatch.setattr(doctor_devices, "_DRIVER", driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    only(doctor_devices.check_torch(), Level.OK, "no NVIDIA driver")
    driver.touch()
    monkeypatch.setattr(torch.version, "cuda", None)
    only(doctor_devices.check_torch(), Level.WARNING, "CPU build", "install a CUDA build")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    only(doctor_devices.check_torch(), Level.FAULT, "cannot use the GPU", "newer driver")


def test_kernels_for_processors_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    only(doctor_devices.check_cpu_kernels(), Level.OK)
    from kernels.cpu import library

    library.library.cache_clear()
    monkeypatch.setenv(library.VARIANT_VARIABLE, "of-nothing")
    try:
        only(doctor_devices.check_cpu_kernels(), Level.WARNING, "_of-nothing.abi3.so is missing")
    finally:
        library.library.cache_clear()


# ---- settings, and what nobody foresaw


def test_settings_that_only_workers_read() -> None:
    assert list(doctor.check_worker_settings({})) == []
    only(doctor.check_worker_settings({"PAGEMILL_METRICS_PORT": "x"}), Level.FAULT, "METRICS_PORT")
    # `jobs` tells of these.
    assert list(doctor.check_worker_settings({"PAGEMILL_LEASE_SECONDS": "x"})) == []


def test_a_look_that_fails_is_a_fault_of_its_own() -> None:
    def fail() -> object:
        raise ImportError("libcudart.so is missing")

    only(doctor._survived("torch", fail), Level.FAULT, "libcudart.so")  # type: ignore[arg-type]
