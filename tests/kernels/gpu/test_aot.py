"""What the kernels are compiled to, without a GPU, is what the committed table says."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.kernels.gpu.aot import table
from tests.kernels.gpu.aot.case import Case
from tests.kernels.gpu.aot.compiling import all_cases
from tests.kernels.gpu.aot.limits import complaints
from tests.kernels.gpu.aot.page import pinned_version
from tests.kernels.gpu.aot.reading import _SASS, _sass_counts
from tests.kernels.gpu.aot.row import Row, parse
from tests.kernels.gpu.aot.targets import TARGETS

ROOT = Path(__file__).parents[3]
FIGURES = {"warps": 4, "stages": 3, "regs": 72, "shared": 4096, "ld16": 6, "instr": 500}
ROW = Row("decode bf16", "decode_kernel", "sm_90", "3.7.1", FIGURES)


def run_compiler(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: this one interprets kernels, and can compile none."""
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={"TRITON_CACHE_DIR": str(ROOT / ".aot" / "cache"), **without},
    )  # fmt: skip


def test_pinned_kernels_are_compiled_to_what_the_table_says() -> None:
    done = run_compiler("-m", "tests.kernels.gpu.aot", "--pinned", "--targets", "sm_80", "sm_90")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "has no rows" not in done.stdout, "the pinned version of Triton is not in the table"


def test_a_kernel_that_spills_is_seen() -> None:
    """And instructions that are there are counted: the tools give what we think they give."""
    done = run_compiler("-m", "tests.kernels.gpu.aot._spilling")
    assert done.returncode == 0, done.stdout + done.stderr
    row = parse(done.stdout.splitlines()[0])
    assert row.figures["stack"] > 0
    assert row.figures["local"] > 0
    assert row.figures["wgmma"] > 0
    assert complaints([row], {row.case: Case(row.case, lambda: None)})


@pytest.mark.quick
def test_another_number_of_registers_is_a_diff(tmp_path: Path) -> None:
    path, other = tmp_path / "table.txt", Row(**{**vars(ROW), "figures": {**FIGURES, "regs": 96}})
    table.save([ROW], [ROW.case], "2026-11-30", path)
    assert table.differences([ROW], path) == ""

    diff = table.differences([other], path).splitlines()

    assert f"-{ROW.line()}" in diff
    assert f"+{other.line()}" in diff


@pytest.mark.quick
def test_the_table_keeps_what_was_not_compiled_and_drops_cases_that_are_gone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "table.txt"
    older = Row(**{**vars(ROW), "triton": "3.6.0"})
    gone = Row(**{**vars(ROW), "case": "gone"})
    table.save([older, gone], [ROW.case, "gone"], "yesterday", path)
    failed = Row.of_failure(ROW.case, "sm_80", "3.7.1", "OutOfResources: shared memory")

    table.save([ROW, failed], [ROW.case], "today", path)

    assert [row.line() for row in table.load(path)] == [row.line() for row in (failed, older, ROW)]
    assert "# triton 3.6.0: yesterday\n# triton 3.7.1: today\n" in path.read_text("utf-8")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stack": 16}, "spills"),
        ({"spills": 2}, "spills"),
        ({"local": 1}, "spills"),
        ({"shared": (227 << 10) + 1}, "over 232448"),
        ({"wgmma": 0}, "has wgmma"),
        ({"async": 0}, "has asynchronous copies"),
    ],
)
def test_what_must_hold_of_every_kernel(change: dict[str, int], said: str) -> None:
    case = Case(ROW.case, lambda: None, wgmma=True, async_copies=True)
    good = {**FIGURES, "wgmma": 4, "async": 2}
    assert complaints([Row(**{**vars(ROW), "figures": good})], {case.name: case}) == []

    (sentence,) = complaints([Row(**{**vars(ROW), "figures": good | change})], {case.name: case})

    assert said in sentence


@pytest.mark.quick
def test_a_kernel_that_does_not_compile_is_said() -> None:
    row = Row.of_failure(ROW.case, "sm_80", "3.6.0", "CompilationError: fp8e4nv not supported")
    (sentence,) = complaints([row], {ROW.case: Case(ROW.case, lambda: None)})
    assert "does not compile: CompilationError: fp8e4nv not supported" in sentence
    assert parse(row.line()) == row


@pytest.mark.quick
def test_instructions_are_counted_by_kind() -> None:
    text = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R4, [R2.64] ;
        /*0020*/              @P1  LDG.E.U16.CONSTANT R4, [R2.64] ;
        /*0030*/                   LDG.E R4, [R2.64] ;
        /*0040*/             @!UP0 LDGSTS.E.BYPASS.128 [R4], [R2.64] ;
        /*0050*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0060*/                   HMMA.16816.F32.BF16 R8, R4, R2, R8 ;
        /*0070*/                   MUFU.EX2 R3, R3 ;
        /*0080*/               @PT BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0090*/                   STL.64 [R1], R2 ;
        /*00a0*/                   NOP ;
    """
    assert _sass_counts(Counter(m.group(1) for m in _SASS.finditer(text))) == {
        "ld16": 1, "ld4": 1, "ld1": 1, "async": 1, "wgmma": 1, "mma": 1, "mufu": 1, "bar": 1,
        "local": 1, "instr": 10,
    }  # fmt: skip


def test_the_table_has_every_case_for_every_chip_and_version_once() -> None:
    """And all of it is within the limits: what is not compiled again here, as well."""
    cases, rows = all_cases(), table.load()
    assert len({row.key for row in rows}) == len(rows)
    versions = {row.triton for row in rows}
    assert pinned_version() in versions
    for version, target in itertools.product(versions, TARGETS):
        mine = {row.case for row in rows if (row.target, row.triton) == (target, version)}
        assert mine == cases.keys(), (version, target)
    assert complaints(rows, cases) == []
