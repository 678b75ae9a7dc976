"""The files of docker/: linted, valid, pinned, complete, and of one mind with the product."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import jobs
from tests.support.compose import (
    FOLDER,
    ROOT,
    compose,
    dockerfile,
    env_example,
    interpolated,
    variables,
)

BIN = Path(sys.executable).parent
TARGETS = ("cpu", "cuda")
PINNED = re.compile(r"[\w./-]+:\d+(\.\d+)+[\w.-]*@sha256:[0-9a-f]{64}")
STAGES = dockerfile()
SERVICES = compose()["services"]

pytestmark = pytest.mark.quick


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "hadolint", "--no-color", str(path)], capture_output=True, text=True, timeout=60
    )


def test_hadolint_finds_nothing(tmp_path):
    done = lint(FOLDER / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    text = (FOLDER / "Dockerfile").read_text()
    assert "hadolint ignore" not in text
    spoilt = tmp_path / "Dockerfile"
    spoilt.write_text(
        re.sub(r"python:[\w.@:-]+", "python:latest", text).replace("--constraint", "--quiet")
    )
    found = lint(spoilt)
    assert found.returncode == 1
    assert {"DL3007", "DL3013"} <= set(re.findall(r"DL\d+", found.stdout))


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cuda.yaml"])
def test_compose_files_are_valid(name, tmp_path):
    def check(path: Path) -> int:
        return subprocess.run(
            [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)],
            capture_output=True, timeout=60,
        ).returncode  # fmt: skip

    assert check(FOLDER / name) == 0
    spoilt = tmp_path / name
    spoilt.write_text((FOLDER / name).read_text().replace("image:", "picture:"))
    assert check(spoilt) != 0


def test_images_of_others_are_pinned_and_ours_have_our_version():
    outside = {stage.base for stage in STAGES.values() if stage.base not in STAGES}
    assert len(outside) == 1
    for image in outside:
        assert PINNED.fullmatch(image)
    both = compose("compose.yaml", "compose.cuda.yaml")["services"]
    for service in (*SERVICES.values(), *both.values()):
        if "build" in service:
            target = service["build"]["target"]
            assert target in TARGETS
            assert service["image"] == f"pagemill:{jobs.__version__}-{target}"
        else:
            assert PINNED.fullmatch(service["image"])
    assert both["worker"]["build"]["target"] == "cuda"
    for file in FOLDER.iterdir():
        for version in re.findall(r"pagemill:([\w.]+)-c|version=\"(.*)\"", file.read_text()):
            assert jobs.__version__ in version


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_pagemill_as_nobody_special(target):
    stage = STAGES[target]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", stage.last("USER"))
    assert stage.words("ENTRYPOINT") == ["pagemill"]
    assert stage.last("STOPSIGNAL") == "SIGTERM"
    assert "/healthz" in stage.healthcheck[-1]
    assert stage.environment["PATH"].startswith("/opt/venv/bin:")
    assert stage.environment["PAGEMILL_METRICS_HOST"] == "0.0.0.0"  # within the container
    assert stage.all("COPY") == [f"--from=environment-{target} /opt/venv /opt/venv"]


def test_the_smaller_image_is_what_is_built_where_no_target_is_named():
    assert list(STAGES)[-1] == "cpu"


def test_everything_is_installed_as_the_tests_ran_with_it():
    installs = [
        command
        for stage in STAGES.values()
        for text in stage.all("RUN")
        for command in re.split(r"&&|;", text)
        if "pip install" in command
    ]
    assert len(installs) == 3
    for command in installs:
        assert "--constraint /source/constraints.txt" in command
        assert "torch" in command or '"$1[postgres,evals]"' in command
    assert re.search(r"^torch==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    for stage in STAGES.values():
        for text in stage.all("RUN"):
            if re.search(r"\bpip (install|wheel)", text):
                assert "--mount=type=cache,target=/root/.cache/pip" in text


def test_what_is_copied_is_there_and_is_let_in():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source
        for stage in STAGES.values()
        for text in stage.all("COPY")
        if "--from" not in text
        for source in text.split()[:-1]
    }
    assert copied == let_in
    for source in copied:
        assert (ROOT / source).exists()
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    assert {name.partition(".")[0] for name in packages} <= copied


def test_services_wait_for_what_can_be_waited_for():
    for service in SERVICES.values():
        for name, wanted in service.get("depends_on", {}).items():
            other = SERVICES[name]
            if wanted["condition"] == "service_healthy":
                assert other["healthcheck"]["test"]
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert other["restart"] == "no"


def test_redis_and_postgres_keep_what_they_have():
    command = SERVICES["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    volumes = compose()["volumes"]
    for name, place in (("redis", "/data"), ("postgres", "/var/lib/postgresql/data")):
        (mounted,) = SERVICES[name]["volumes"]
        volume, where = mounted.split(":")
        assert where == place
        assert volume in volumes


def test_nothing_can_be_reached_from_outside_and_nothing_may_do_more_than_it_must():
    for name, service in SERVICES.items():
        assert "ports" not in service
        assert not service.get("privileged")
        if "build" in service:
            assert service["read_only"] is True, name
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_password_has_no_default_and_is_in_no_url():
    named = variables(SERVICES)
    assert named["POSTGRES_PASSWORD"] == ":?"
    assert named["PAGEMILL_MODEL"] == ":?"
    without = env_example() | {"POSTGRES_PASSWORD": ""}
    with pytest.raises(KeyError, match=r"POSTGRES_PASSWORD into docker/\.env"):
        interpolated(SERVICES, without)
    filled = interpolated(SERVICES, env_example())
    for service in filled.values():
        for value in service.get("environment", {}).values():
            assert not re.search(r"://[^/@]*:[^/@]*@", value)


def test_the_example_names_every_variable_and_no_other():
    named = set(variables(compose())) | set(variables(compose("compose.cuda.yaml")))
    assert set(env_example()) == named
    assert re.search(r"^\.env$", (ROOT / ".gitignore").read_text(), re.MULTILINE)


def test_variables_of_the_product_are_those_that_it_knows():
    named = {name for target in TARGETS for name in STAGES[target].environment}
    named |= {name for service in SERVICES.values() for name in service.get("environment", {})}
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    ours = {name for name in named if name.startswith("PAGEMILL_")}
    assert {"PAGEMILL_DATABASE_URL", "PAGEMILL_BROKER_URL", "PAGEMILL_STORAGE_URL"} <= ours
    for name in ours:
        assert f"`{name}`" in pages, name
