"""What Prometheus sees of a worker."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engine.messages import STEP_BUCKETS, EngineStats
from worker.errors import MetricsUnavailable
from worker.metrics import worker_registry
from worker.metrics_server import MetricsServer
from worker.snapshot import Snapshot, WorkerState
from worker.workload import Outcome, WorkloadTotals

SNAPSHOT = Snapshot(
    state=WorkerState.READY,
    message=None,
    device="cpu",
    dtype="float32",
    engine=EngineStats(
        running=8, waiting=3, blocks_used=40, blocks_cached=20, blocks_total=100, steps=6,
        prompt_tokens=1000, cached_tokens=910, generated_tokens=500, late_tokens=4,
        preemptions=2, swap_outs=1, swap_ins=6, swap_blocks_used=30, swap_blocks_total=90,
        out_of_memory=3, step_seconds=1.25, step_buckets=(1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2),
    ),
    engine_restarts=1,
    rows_suspected=12,
    rows_blamed=5,
    tokens_per_second=123.5,
    work=WorkloadTotals(
        chunks_held=2, rows_done=30, rows_total=64, completed=600, failed=7,
        outcomes={
            Outcome.DONE: 9, Outcome.HANDED_BACK: 1, Outcome.FENCED: 2, Outcome.FAILED: 3,
        },
        lease_age=12.5, jobs=("job_x",),
    ),
    heartbeat_age=0.5,
    heartbeat_failures=4,
)  # fmt: skip


def scraped(text):
    """Every sample by its name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(snapshot):
    return scraped(generate_latest(worker_registry(lambda: snapshot, "m")).decode())


def test_every_number_is_where_it_belongs():
    found = of(SNAPSHOT)
    plain = {
        "prompt_tokens_total": 1000, "cached_tokens_total": 910, "generated_tokens_total": 500,
        "late_tokens_total": 4,
        "tokens_per_second": 123.5, "prefix_cache_hit_ratio": 0.91,
        "requests_running": 8, "requests_waiting": 3,
        "kv_blocks_used": 40, "kv_blocks_cached": 20, "kv_blocks_capacity": 100,
        "preemptions_total": 2, "swap_outs_total": 1, "swap_ins_total": 6,
        "swap_blocks_used": 30, "swap_blocks_capacity": 90, "engine_restarts_total": 1,
        "device_seconds_total": 1.25,
        "rows_suspected": 12, "rows_blamed_total": 5, "out_of_memory_total": 3,
        "chunks_held": 2, "lease_age_seconds": 12.5,
        "heartbeat_age_seconds": 0.5, "heartbeat_failures_total": 4,
    }  # fmt: skip
    assert {name: found[f"pagemill_{name}",] for name in plain} == plain
    rows = {o: found["pagemill_rows_total", ("outcome", o)] for o in ("completed", "failed")}
    assert rows == {"completed": 600, "failed": 7}
    chunks = {o: found["pagemill_chunks_total", ("outcome", o)] for o in Outcome}
    assert chunks == {"done": 9, "handed_back": 1, "fenced": 2, "failed": 3}


def test_steps_are_a_cumulative_histogram():
    found = of(SNAPSHOT)
    name = "pagemill_step_duration_seconds"
    counts = [found[f"{name}_bucket", ("le", str(bound))] for bound in (*STEP_BUCKETS, "+Inf")]
    assert counts == [1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 6]
    assert found[f"{name}_count",] == 6
    assert found[f"{name}_sum",] == 1.25


def test_one_state_is_true():
    found = of(replace(SNAPSHOT, state=WorkerState.DRAINING))
    states = {s: found["pagemill_worker_state", ("state", s)] for s in WorkerState}
    assert states == {"starting": 0, "ready": 0, "draining": 1, "failed": 0, "stopped": 0}


def test_it_says_what_runs():
    (labels,) = (dict(key[1:]) for key in of(SNAPSHOT) if key[0] == "pagemill_build_info")
    assert labels.pop("version")
    assert labels == {"model": "m", "device": "cpu", "dtype": "float32"}


def test_a_model_is_one_label_whatever_it_is_called():
    name = 'C:\\models\\"quoted"\nand more'
    text = generate_latest(worker_registry(lambda: SNAPSHOT, name)).decode()
    (info,) = (f for f in text_string_to_metric_families(text) if f.name == "pagemill_build_info")
    assert info.samples[0].labels["model"] == name


def test_before_the_model_is_loaded_there_are_numbers_too():
    engine = EngineStats(step_buckets=(0,) * (len(STEP_BUCKETS) + 1))
    found = of(replace(SNAPSHOT, engine=engine, device=None, dtype=None))
    assert found["pagemill_prefix_cache_hit_ratio",] == 0
    assert found["pagemill_step_duration_seconds_count",] == 0


def test_no_metric_has_a_job_or_a_chunk_as_label():
    labels = {name for key in of(SNAPSHOT) for name, _ in key[1:] if "pagemill" in key[0]}
    assert labels == {"outcome", "state", "le", "version", "model", "device", "dtype"}


@pytest.fixture
def server():
    made = Served()
    yield made
    made.server.close()


class Served:
    """A server of the snapshot."""

    def __init__(self, host="127.0.0.1"):
        self.trouble = None
        registry = worker_registry(lambda: SNAPSHOT, "m")
        self.server = MetricsServer(host, 0, registry, lambda: self.trouble)
        self.server.start()

    def get(self, path, **headers):
        url = self.server.url.removesuffix("/metrics") + path
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def test_metrics_over_http(server):
    status, text = server.get("/metrics")
    assert status == 200
    assert scraped(text)["pagemill_generated_tokens_total",] == 500
    assert any(key[0] == "process_resident_memory_bytes" for key in scraped(text))


def test_a_scraper_that_speaks_openmetrics_is_answered_so(server):
    status, text = server.get("/metrics", Accept="application/openmetrics-text")
    assert status == 200
    assert text.endswith("# EOF\n")


def test_health(server):
    assert server.get("/healthz") == (200, "ok\n")
    server.trouble = "no heartbeat for 90 s"
    assert server.get("/healthz") == (503, "no heartbeat for 90 s\n")


def test_there_is_nothing_else(server):
    status, text = server.get("/")
    assert status == 404
    assert "/healthz" in text


def test_it_writes_nothing_of_its_own(server, capfd):
    server.get("/metrics")
    server.get("/nothing")
    assert capfd.readouterr() == ("", "")


def test_a_client_that_says_nothing_keeps_no_other_waiting(server):
    port = int(server.server.url.rpartition(":")[2].removesuffix("/metrics"))
    with socket.create_connection(("127.0.0.1", port)):
        assert server.get("/healthz")[0] == 200


def test_a_port_that_is_taken_is_told(server):
    port = int(server.server.url.rpartition(":")[2].removesuffix("/metrics"))
    with pytest.raises(MetricsUnavailable, match=f"127.0.0.1 port {port}: .*in use.*metrics-port"):
        MetricsServer("127.0.0.1", port, CollectorRegistry(), lambda: None)


@pytest.mark.parametrize("host", ["no such host", "x" * 100 + ".example"])
def test_a_host_that_cannot_be_is_told(host):
    with pytest.raises(MetricsUnavailable, match="--metrics-host"):
        MetricsServer(host, 0, CollectorRegistry(), lambda: None)


def test_all_addresses_and_names_can_be_listened_on():
    for host, shown in (("0.0.0.0", "http://0.0.0.0:"), ("localhost", "http://")):
        served = Served(host)
        assert served.server.url.startswith(shown)
        assert served.get("/healthz")[0] == 200
        served.server.close()


@pytest.mark.parametrize("state", [s for s in WorkerState if s is not WorkerState.FAILED])
def test_a_worker_whose_heart_beats_is_healthy_in_any_state(state):
    assert replace(SNAPSHOT, state=state).trouble(60.0) is None


def test_a_worker_that_failed_is_not_healthy():
    failed = replace(SNAPSHOT, state=WorkerState.FAILED, message="the engine is lost")
    assert failed.trouble(60.0) == "the worker failed: the engine is lost"


def test_a_worker_whose_heartbeats_fail_for_a_lease_is_not_healthy():
    assert replace(SNAPSHOT, heartbeat_age=60.0).trouble(60.0) is None
    said = replace(SNAPSHOT, heartbeat_age=61.0).trouble(60.0)
    assert "no heartbeat succeeded for 61 s" in said


def test_the_row_in_sql_says_the_same():
    status = replace(SNAPSHOT, message="why").status()
    assert (status.state, status.message, status.device) == ("ready", "why", "cpu")
    assert (status.chunks_held, status.rows_completed, status.rows_failed) == (2, 600, 7)
    assert (status.blocks_used, status.blocks_cached, status.blocks_total) == (40, 20, 100)
    assert (status.prompt_tokens, status.cached_tokens, status.generated_tokens) == (1000, 910, 500)
    assert (status.running, status.waiting, status.preemptions) == (8, 3, 2)
    assert status.tokens_per_second == 123.5
