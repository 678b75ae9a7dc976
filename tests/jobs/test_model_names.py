"""What `submit` says of a model that a worker may not find."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from jobs import submit
from jobs.cli.deployment import model_name
from jobs.errors import UsageError
from jobs.model_names import ModelNames, hub_cache
from tests.support.command_line import CommandLine
from tests.support.played_job import PlayedJob

pytestmark = pytest.mark.quick
ROW = '{"prompt": "a"}\n'


@pytest.fixture(autouse=True)
def public_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch).with_tables(migrated_sqlite)


def doubt(model: str, served: Collection[str] = (), **known: Any) -> str | None:
    return ModelNames(lambda: served, **known).doubt(model_name(model))


def refused(model: str, **known: Any) -> str:
    with pytest.raises(UsageError) as caught:
        doubt(model, **known)
    return str(caught.value)


def make_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


# ---- names


def test_the_model_of_the_package_is_known() -> None:
    def asked() -> Collection[str]:
        raise AssertionError("nothing has to be asked")

    assert ModelNames(asked).doubt("smollm2-135m") is None


@pytest.mark.parametrize("model", ["typo", "gpt2", "the-model"])
def test_a_name_without_an_owner_is_refused(model: str) -> None:
    said = refused(model)
    assert f"no worker has served {model} yet, and it is not on this machine" in said
    assert f"Name a folder by its path (./{model}), or a model of the hub as owner/name" in said


@pytest.mark.parametrize("model", ["smolm2-135m", "SmolLM2-135M", "smollm2"])
def test_a_mistyped_name_is_told_which_was_meant(model: str) -> None:
    assert "this machine (did you mean smollm2-135m?). Name a folder" in refused(model)


def test_a_name_that_a_worker_has_served_is_taken() -> None:
    assert doubt("typo", {"typo"}) is None
    assert "did you mean my-model?" in refused_beside("my-modle", {"my-model"})


def refused_beside(model: str, served: Collection[str]) -> str:
    with pytest.raises(UsageError) as caught:
        doubt(model, served)
    return str(caught.value)


def test_another_hub_may_have_names_without_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example.com")
    assert "no worker has served typo yet" in (doubt("typo") or "")


@pytest.mark.parametrize(
    "model",
    ["a b", "owner/na me", "owner/", "-x/y", "owner/name.", "a--b/c", "a..b", "o/" + "n" * 97,
     "ö/n", "a/b/c", "models/llama/8b", r"C:\models\llama", "owner/name@main", ""],
)  # fmt: skip
def test_what_can_be_no_name_of_the_hub_is_refused(model: str) -> None:
    """Wherever the workers are, and whatever they have served."""
    said = refused(model) if model else refused_name("")
    assert "owner/name" in said


def refused_name(model: str) -> str:
    with pytest.raises(UsageError) as caught:
        ModelNames(lambda: [model]).doubt(model)
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://huggingface.co/owner/name", "https://huggingface.co/owner/name/tree/main?x=1",
        "hf://owner/name",
    ],
)  # fmt: skip
def test_the_address_of_a_model_is_told_by_its_name(url: str) -> None:
    assert refused(url) == f"--model is {url}; name a model of the hub so: owner/name"


def test_of_the_hub_only_what_was_here_is_known(tmp_path: Path) -> None:
    said = doubt("owner/name")
    assert said is not None
    assert "no worker has served owner/name yet, and it is not on this machine" in said
    assert "`pagemill pull owner/name` asks" in said
    (tmp_path / "hub" / "models--owner--name" / "snapshots").mkdir(parents=True)
    (tmp_path / "hub" / "version.txt").touch()
    assert doubt("owner/name") is None
    assert "did you mean owner/name?" in (doubt("owner/nmae") or "")
    assert doubt("other/name-2", {"other/name-2"}) is None


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, "/c"),
        ({"HUGGINGFACE_HUB_CACHE": "/old"}, "/old"),
        ({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HOME": "/home/ann"}, "/home/ann/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_the_hub_has_it(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub_cache() == Path(folder)


# ---- paths


@pytest.mark.parametrize("model", ["./llama", "../llama", "/none/llama", "~/none", "m.gguf"])
def test_a_path_to_nothing_may_be_one_on_another_machine(model: str) -> None:
    path = model_name(model)

    said = f"there is no model {path} on this machine"
    assert doubt(model) == f"{said}; only a worker on a machine that has it can answer"
    assert said in refused(model, here=True)
    assert doubt(model, {path}, here=True) is None  # in a container of this machine, perhaps


def test_a_path_is_told_what_is_beside_it(tmp_path: Path) -> None:
    make_model(tmp_path / "models" / "llama-3-8b")
    assert "did you mean llama-3-8b?" in refused("./models/llama3-8b", here=True)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "holds no model: there is no config.json in it"),
        (["a.gguf", "b.gguf"], "holds .gguf files; name one of them, such as"),
    ],
)
def test_a_folder_without_a_model(files: list[str], said: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in files:
        (folder / name).touch()
    assert said in refused("folder", here=True)
    assert said in (doubt("folder") or "")


def test_files_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(ROW)
    (tmp_path / "model.safetensors").touch()
    assert "is a file, and no .gguf file" in refused("prompts.jsonl", here=True)
    assert "name the folder that holds it" in refused("model.safetensors", here=True)


def test_models_that_are_here(tmp_path: Path) -> None:
    make_model(tmp_path / "llama")
    (tmp_path / "m.gguf").touch()
    for model in ("llama", "./llama", str(tmp_path / "llama"), "m.gguf"):
        assert doubt(model, here=True) is None


# ---- the commands


def test_nothing_is_queued_for_a_model_that_can_be_nowhere(cli: CommandLine) -> None:
    _, err = cli("submit", "-", "--model", "typo", stdin=ROW, expect=64)
    assert err.startswith("Error: --model: no worker has served typo yet")
    cli("run", "-", "--model", "./typo", stdin=ROW, expect=64)
    with pytest.raises(UsageError, match="no worker has served typo yet"):
        submit([{"prompt": "a"}], model="typo")
    assert cli.json("list") == []


def test_evaluations_and_schedules_ask_for_judges_too(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "target": "b"}\n')
    asked = ("rows.jsonl", "--model", "smollm2-135m")
    judge = ("--scorer", "judge:model=typo")
    for command in (("eval", "run"), ("schedule", "add", "x", "--cron", "@daily")):
        _, err = cli(*command, *asked, *judge, expect=64)
        assert "no worker has served typo yet" in err
        _, err = cli(*command, *asked[:-1], "typo", "--scorer", "exact", expect=64)
        assert "no worker has served typo yet" in err
    assert cli.json("eval", "list") == cli.json("schedule", "list") == []


def test_a_job_that_was_begun_has_shown_its_model(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as mirrored:
        mirrored.setenv("HF_ENDPOINT", "https://hub.example.com")
        out, err = cli("submit", "-", "--model", "the-model", stdin=ROW)
    assert err.count("Warning: ") == 1
    assert "no worker has served the-model yet" in err
    with cli.store() as store:
        PlayedJob(store, cli.storage, out.strip()).finish_all()

    _, err = cli("submit", "-", "--model", "the-model", stdin=ROW)

    assert "Warning" not in err


def test_on_a_server_other_machines_may_have_the_path(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", cli.settings.database_url)

    _, err = cli("submit", "-", "--model", "/models/llama", stdin=ROW)

    assert "Warning: there is no model /models/llama on this machine; only a worker on a" in err
    cli("run", "-", "--model", "/models/llama", stdin=ROW, expect=64)  # which answers it here
