"""pagemill's own engine, in this process, with its default settings and nothing primed."""

from __future__ import annotations

from adapter import Generate, Options, Row, run


def load(options: Options) -> Generate:
    from engine.config import EngineConfig
    from engine.core import Engine
    from engine.request import Request
    from engine.sampling_params import SamplingParams

    engine = Engine(
        EngineConfig(
            model=str(options.model),
            threads=options.threads,
            kv_cache_dtype=options.kv_cache_dtype,
        )
    )

    def generate(rows: list[Row]) -> list[list[int]]:
        requests = (
            Request(str(i), tuple(row.ids), SamplingParams(row.max_tokens, ignore_eos=True))
            for i, row in enumerate(rows)
        )
        found = {output.request_id: output.token_ids for output in engine.generate(requests)}
        return [list(found[str(i)]) for i in range(len(rows))]

    return generate


if __name__ == "__main__":
    run(load, "pagemill", "torch")
