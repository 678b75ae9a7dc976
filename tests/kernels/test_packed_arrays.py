"""Arrays of the host become views of one buffer of the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.packed_arrays import PackedArrays

pytestmark = pytest.mark.quick

ARRAYS = (
    (np.arange(5, dtype=np.int32), 9),
    (np.array([0.5, -1.25], dtype=np.float32), None),
    (np.array([], dtype=np.int32), 3),
    (np.array([2**40, -7], dtype=np.int64), 4),
    (np.array([], dtype=np.int64), None),
    (np.array([1], dtype=np.uint8), 2),
)


def packed(arrays=ARRAYS):
    arrays_of_step = PackedArrays()
    for array, capacity in arrays:
        arrays_of_step.add(array, capacity)
    return arrays_of_step


@pytest.mark.parametrize("given", [True, False], ids=["into", "new memory"])
def test_every_array_is_a_view_of_its_own_numbers(given):
    step = packed()
    into = torch.zeros(step.num_bytes + 40, dtype=torch.uint8) if given else None

    tensors = step.upload("cpu", into)

    assert len(tensors) == len(ARRAYS)
    for tensor, (array, capacity) in zip(tensors, ARRAYS, strict=True):
        assert tensor.shape == (len(array) if capacity is None else capacity,)
        expected = torch.from_numpy(array)
        assert tensor.dtype is expected.dtype
        assert torch.equal(tensor[: len(array)], expected)
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1
    if into is not None:
        assert tensors[0].data_ptr() == into.data_ptr()


def test_arrays_begin_where_sixteen_bytes_can_be_loaded_and_do_not_overlap():
    tensors = packed().upload()

    starts = [tensor.storage_offset() * tensor.itemsize for tensor in tensors]
    ends = [start + tensor.nbytes for start, tensor in zip(starts, tensors, strict=True)]
    assert all(start % 16 == 0 for start in starts)
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_a_later_step_of_the_same_capacities_lies_at_the_same_addresses():
    first = packed()
    into = torch.zeros(first.num_bytes, dtype=torch.uint8)
    before = first.upload("cpu", into)
    later = packed([(array[:1], capacity or len(array)) for array, capacity in ARRAYS])

    after = later.upload("cpu", into)

    assert [t.data_ptr() for t in after] == [t.data_ptr() for t in before]
    assert before[0][0] == 0
    assert before[3][0] == 2**40


def test_nothing_is_copied_after_the_last_number():
    step = packed([(np.ones(4, dtype=np.int32), 8), (np.zeros(0, dtype=np.int32), 100)])
    into = torch.full((step.num_bytes,), 9, dtype=torch.uint8)

    step.upload("cpu", into)

    assert into[:16].tolist() == [1, 0, 0, 0] * 4
    assert set(into[16:].tolist()) == {9}


def test_a_large_gap_is_not_copied():
    """Two windows have a block table each: the first one's room is megabytes, mostly unused."""
    ones = np.ones(4, dtype=np.int32)
    step = packed([(ones, 8), (ones, 1 << 20), (ones, 8), (ones, None)])
    into = torch.full((step.num_bytes,), 9, dtype=torch.uint8)

    tensors = step.upload("cpu", into)

    assert [t[:4].tolist() for t in tensors] == [[1] * 4] * 4
    # Not counted over all of it: small gaps are copied, with whatever the host's memory holds.
    room = tensors[1][4:].view(torch.uint8)
    assert len(room) == 4 * ((1 << 20) - 4)
    assert (room == 9).all()


def test_more_numbers_than_the_capacity_are_refused():
    with pytest.raises(ValueError, match="5 numbers do not fit into a capacity of 4"):
        PackedArrays().add(np.arange(5), 4)


def test_no_arrays_make_no_tensors():
    assert PackedArrays().upload() == []
