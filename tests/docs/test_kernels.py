"""docs/kernels.md has every operation, its floor, and what the committed table says."""

from __future__ import annotations

import pytest

from kernels.gpu.library import VARIANT_VARIABLE
from kernels.gpu.operations import OPERATIONS
from tests.kernels.gpu.aot import page, table
from tests.kernels.gpu.aot.row import FIGURES
from tests.support.named_tests import ROOT

PAGE = page.PATH.read_text("utf-8")

# The H200's, and the example's.
BYTES_A_SECOND, HIDDEN, INNER, VOCABULARY, HEAD_DIM = 4.8e12, 4096, 14_336, 128_256, 128
FLOORS = {
    "rms_norm": 4 * HIDDEN,
    "add_rms_norm": 8 * HIDDEN,
    "gather_rows": 4 * HIDDEN,
    "silu_and_mul": 6 * INNER,
    "rope_kv_write": 4 * (32 + 16) * HEAD_DIM,
}

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_there(name: str) -> None:
    parts = PAGE.split("\n## ")
    floors = next(part for part in parts if part.startswith("Each kernel and its floor"))
    measured = next(part for part in parts if part.startswith("What was measured"))
    assert f"`{name}`" in floors
    assert f"`{name}`" in measured


@pytest.mark.parametrize(("name", "size"), FLOORS.items())
def test_floors_are_their_bytes_over_the_bandwidth(name: str, size: int) -> None:
    decode, prompts = (1e6 * tokens * size / BYTES_A_SECOND for tokens in (256, 8192))
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
    assert row.endswith(f"| {decode:.1f} us | {prompts:.0f} us |")


def test_what_they_are_compiled_to_is_what_the_table_says() -> None:
    written = PAGE.split(page.BEGIN)[1].split(page.END)[0].strip()
    assert written == page.summary(table.load()).strip(), "make aot AOT_SAVE=1 writes it anew"


def test_columns_and_versions_are_those_of_the_table() -> None:
    versions = {row.triton for row in table.load()}
    assert page.pinned_version() in versions
    assert all(version in PAGE for version in versions)
    assert f"With Triton {page.pinned_version()}: " in PAGE
    explained = PAGE.split("| column | |")[1].split("\n\n")[0]
    between = {"ld8", "ld4"}
    assert all(f"`{name}`" in explained for name in FIGURES if name not in between)


def test_the_variable_is_that_of_the_code_and_the_page_is_found() -> None:
    assert f"| `{VARIANT_VARIABLE}` |" in PAGE
    assert "(docs/kernels.md)" in (ROOT / "README.md").read_text("utf-8")
