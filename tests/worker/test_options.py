"""The worker's command line."""

import pytest

from jobs.errors import SettingsError
from worker.options import WorkerOptions

pytestmark = pytest.mark.quick


def test_engine_options_become_settings_of_the_engine():
    options = WorkerOptions.parse(
        ["--model", "m", "--block-size", "8", "--no-prefix-cache", "--threads", "1"], {}
    )
    assert options.engine == {
        "model": "m",
        "block_size": 8,
        "threads": 1,
        "enable_prefix_caching": False,
    }


def test_what_is_not_given_is_left_to_the_engine():
    options = WorkerOptions.parse(["--model", "m"], {})
    assert options.engine == {"model": "m"}
    assert not options.watch_parent
    assert options.exit_when_done is None


def test_every_engine_option_is_a_setting_of_the_engine():
    from engine.config import EngineConfig

    options = WorkerOptions.parse(
        [
            "--model=m", "--dtype=float32", "--device=cpu", "--block-size=8", "--num-blocks=9",
            "--max-model-len=64", "--max-num-seqs=2", "--max-num-batched-tokens=32",
            "--threads=1", "--gpu-memory-utilization=0.5", "--no-prefix-cache", "--deterministic",
            "--swap-space=0.25", "--watermark=0.02", "--overlap",
        ],
        {"PAGEMILL_CHECK_INVARIANTS": "1"},
    )  # fmt: skip
    config = EngineConfig.from_mapping(options.engine)
    assert (config.num_blocks, config.max_model_len, config.check_invariants) == (9, 64, True)
    assert (config.swap_space, config.watermark) == (0.25, 0.02)
    assert config.deterministic
    assert config.overlap


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--model", "m", "--concurrency", "0"],
        ["--model", "m", "--metrics-port", "65536"],
        ["--model", "m", "--log-format", "xml"],
    ],
)
def test_unusable_arguments_end_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        WorkerOptions.parse(arguments, {})
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_logs_and_metrics_come_from_the_environment_where_no_option_says_more():
    env = {
        "PAGEMILL_LOG_FORMAT": "JSON",
        "PAGEMILL_LOG_LEVEL": "debug",
        "PAGEMILL_METRICS_PORT": "9100",
        "PAGEMILL_METRICS_HOST": "0.0.0.0",
        "PAGEMILL_PROGRESS_SECONDS": "2.5",
    }
    options = WorkerOptions.parse(["--model", "m"], env)
    assert (options.log_format, options.log_level) == ("json", "debug")
    assert (options.metrics_host, options.metrics_port) == ("0.0.0.0", 9100)
    assert options.progress_seconds == 2.5
    assert options.engine_env() == {
        "PAGEMILL_LOG_FORMAT": "json",
        "PAGEMILL_LOG_LEVEL": "debug",
    }
    given = [
        "--log-format",
        "text",
        "--log-level",
        "error",
        "--metrics-port",
        "0",
        "--metrics-host",
        "::1",
    ]
    options = WorkerOptions.parse(["--model", "m", *given], env)
    assert (options.log_format, options.log_level) == ("text", "error")
    assert (options.metrics_host, options.metrics_port) == ("::1", 0)


def test_without_them_logs_are_text_and_nothing_listens():
    options = WorkerOptions.parse(["--model", "m"], {"PAGEMILL_METRICS_PORT": ""})
    assert (options.log_format, options.log_level) == ("text", "info")
    assert options.metrics_port is None
    assert options.metrics_host == "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PAGEMILL_LOG_FORMAT", "xml"),
        ("PAGEMILL_LOG_LEVEL", "loud"),
        ("PAGEMILL_METRICS_PORT", "http"),
        ("PAGEMILL_METRICS_PORT", "-1"),
        ("PAGEMILL_METRICS_PORT", "65536"),
        ("PAGEMILL_PROGRESS_SECONDS", "0"),
        ("PAGEMILL_PROGRESS_SECONDS", "often"),
        ("PAGEMILL_PROGRESS_SECONDS", "nan"),
        ("PAGEMILL_ENGINE_TIMEOUT_SECONDS", "0"),
    ],
)
def test_a_variable_that_cannot_work_is_refused_by_name(name, value):
    with pytest.raises(SettingsError, match=name.removeprefix("PAGEMILL_").lower() + "|" + name):
        WorkerOptions.parse(["--model", "m"], {name: value})
