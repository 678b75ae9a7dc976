"""The worker's command line."""

import pytest

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
            "--threads=1", "--gpu-memory-utilization=0.5", "--no-prefix-cache",
        ],
        {"PAGEMILL_CHECK_INVARIANTS": "1"},
    )  # fmt: skip
    config = EngineConfig.from_mapping(options.engine)
    assert (config.num_blocks, config.max_model_len, config.check_invariants) == (9, 64, True)


@pytest.mark.parametrize("arguments", [[], ["--model", "m", "--concurrency", "0"]])
def test_unusable_arguments_end_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        WorkerOptions.parse(arguments, {})
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
