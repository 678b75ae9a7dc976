"""OpenVINO GenAI: float32 weights and arithmetic, KV cache in float16, continuous batching."""

from __future__ import annotations

from adapter import Generate, Options, Row, run


def load(options: Options) -> Generate:
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching = True
    scheduler.cache_size = 4
    scheduler.dynamic_split_fuse = True
    scheduler.max_num_seqs = 256
    scheduler.max_num_batched_tokens = 512
    pipeline = genai.ContinuousBatchingPipeline(
        str(options.environment / "model"),
        scheduler,
        "CPU",
        {
            "INFERENCE_NUM_THREADS": options.threads,
            # Its defaults differ between processors: bfloat16 where the hardware has it.
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f16",
        },
    )

    def generate(rows: list[Row]) -> list[list[int]]:
        prompts = [ov.Tensor(np.array([row.ids], dtype=np.int64)) for row in rows]
        results = pipeline.generate(prompts, [_greedy(genai, row.max_tokens) for row in rows])
        return [list(result.m_generation_ids[0]) for result in results]

    return generate


def _greedy(genai: object, max_tokens: int) -> object:
    config = genai.GenerationConfig()  # type: ignore[attr-defined]
    config.max_new_tokens = max_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


if __name__ == "__main__":
    run(load, "openvino", "openvino-genai")
