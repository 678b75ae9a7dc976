"""The commands of docs/tour.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

JOB, EVAL = r"job_[a-z2-7]{20}", r"eval_[a-z2-7]{20}"
TICKETS = "examples/support_tickets.jsonl --model smollm2-135m"
NIGHTLY = (
    "pagemill schedule add nightly examples/evals/questions.jsonl --cron '0 2 * * *' "
    "--timezone Europe/Berlin --model smollm2-135m --template examples/evals/few-shot.jinja "
    "--max-tokens 16 --stop-token-ids 198 --scorer normalized --slice topic "
    "--gate 'normalized:drop<=0.02,p<0.05'"
)


@dataclass(frozen=True)
class Step:
    """A command.

    Attributes:
        name: what later commands call the first thing in its output that fits `pattern`.
        ends: exit codes that it may end with.
        background: it runs beside the others.
        seconds: after which it is told to leave.
    """

    command: str
    name: str = ""
    pattern: str = ""
    ends: tuple[int, ...] = (0,)
    background: bool = False
    seconds: int = 0


class Tour(NamedTuple):
    """Files that are there, and sections: title, words, steps."""

    files: dict[str, str]
    sections: list[tuple[str, str, list[Step]]]


STEPS = Tour(
    files={
        "slip.jsonl": '{"custom_id": "good", "prompt": "Water is"}\n'
        '{"custom_id": "slip", "prompt": "Fire is", "max_tokns": 4}\n'
    },
    sections=[
        (
            "Before",
            "The model is brought, the machine looked at, and the file weighed.",
            [
                Step("pagemill db upgrade"),
                Step("pagemill db check"),
                Step("pagemill pull smollm2-135m"),
                Step("pagemill doctor --model smollm2-135m", ends=(0, 1)),
                Step(f"pagemill estimate {TICKETS} --max-tokens 16"),
            ],
        ),
        (
            "One command for all",
            "`run` submits, starts a worker, waits, and shows the first answers.",
            [
                Step(f"pagemill run {TICKETS} --limit 8 --max-tokens 16", "ran", JOB),
                Step("pagemill logs {ran}"),
                Step(f"pagemill estimate {TICKETS} --max-tokens 16"),
            ],
        ),
        (
            "A job and a worker",
            "`submit` prints the id, and a worker anywhere answers it.",
            [
                Step(
                    f"pagemill submit {TICKETS} --name tickets --limit 16 --chunk-rows 8 "
                    "--max-tokens 16",
                    "job",
                    JOB,
                ),
                Step("pagemill pause {job}"),
                Step("pagemill resume {job}"),
                Step("pagemill worker --model smollm2-135m --exit-when-done {job}"),
                Step("pagemill status {job}"),
                Step("pagemill wait {job}"),
                Step("pagemill tail {job} --all"),
                Step("pagemill results {job} --format csv -o answers.csv"),
                Step("pagemill results {job} -o answers/"),
                Step("pagemill events {job}"),
                Step("pagemill workers --all"),
                Step("pagemill list"),
            ],
        ),
        (
            "What did not work",
            "A row with a slip is refused when it is submitted; the others go on. Rows that were\n"
            "not answered can be tried again.",
            [
                Step("pagemill submit slip.jsonl --model smollm2-135m --max-tokens 4", "slip", JOB),
                Step("pagemill errors {slip}"),
                Step("pagemill cancel {slip}"),
                Step("pagemill retry {slip}", ends=(0, 75)),
                Step("pagemill cancel {slip}", ends=(0, 75)),
                Step("pagemill delete {slip}", ends=(0, 75)),
                Step("pagemill notifications"),
                Step("pagemill gc"),
            ],
        ),
        (
            "Evaluations",
            "A schedule, a worker beside, the first evaluation by hand, the blessing of it, and a\n"
            "second one that is worse.",
            [
                Step(NIGHTLY),
                Step("pagemill schedule list"),
                Step("pagemill worker --model smollm2-135m", background=True),
                Step("pagemill schedule run-now nightly", "first", EVAL),
                Step("pagemill eval wait {first}"),
                Step("pagemill eval bless {first}"),
                Step(f"{NIGHTLY} --temperature 1 --replace"),
                Step("pagemill schedule run-now nightly --wait", "second", EVAL, ends=(10,)),
                Step("pagemill eval gate {second}", ends=(10,)),
                Step("pagemill eval show {second}"),
                Step("pagemill eval compare {first} {second}"),
                Step("pagemill eval scores {second} -o scores.parquet"),
                Step("pagemill eval rescore {first}"),
                Step("pagemill eval list nightly"),
                Step("pagemill report nightly -o nightly.html"),
                Step("pagemill schedule show nightly"),
                Step("pagemill schedule pause nightly"),
                Step("pagemill schedule resume nightly"),
                Step("pagemill schedule remove nightly"),
                Step("pagemill eval cancel {second}", ends=(0, 75)),
                Step("pagemill eval delete {second}"),
                Step(
                    "pagemill eval run --spec examples/evals/demo.json "
                    "--template examples/evals/zero-shot.jinja --limit 16 --no-worker"
                ),
            ],
        ),
        (
            "Running it",
            "A beat looks after the jobs of a deployment where no worker lives; here it is told\n"
            "to leave after some seconds.",
            [
                Step("pagemill beat", seconds=4),
                Step("pagemill shell-init --help"),
            ],
        ),
    ],
)
