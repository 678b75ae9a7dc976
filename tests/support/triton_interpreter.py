"""Triton's interpreter, mended: with numbers of 16 and 8 bits it is silently wrong as it comes.

Seen in 3.6 to 3.9: arithmetic, products and sums of bfloat16 work on its raw bits; rounding to
bfloat16 truncates; rounding to fp8 loses the carry and does not saturate. Here such numbers are
computed in float32 and rounded to nearest even, fp8 saturating, as the devices do it. And a
condition on one number that is broadcast is no condition any more, which 3.9 refuses as a mask.

TRITON_INTERPRET=1 must be set before triton is imported (tests/conftest.py).
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.language.extra import libdevice

_NARROW = {
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
_COMPARISONS = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
_CASTS = (
    "create_si_to_fp", "create_ui_to_fp", "create_fp_to_si", "create_fp_to_ui", "create_fp_ext",
    "create_fp_trunc",
)  # fmt: skip
_ELEMENTWISE = {
    "rint": np.rint, "tanh": np.tanh, "nearbyint": np.rint, "trunc": np.trunc, "exp": np.exp,
    "log1p": np.log1p, "erf": None,
}  # fmt: skip


def _is_narrow(handle: Any) -> bool:
    return isinstance(handle, interpreter.TensorHandle) and handle.dtype.scalar in _NARROW


def _widened(handle: Any) -> Any:
    bits = torch.from_numpy(np.ascontiguousarray(handle.data).copy())
    wide = bits.view(_NARROW[handle.dtype.scalar]).float()
    return interpreter.TensorHandle(wide.numpy().reshape(handle.data.shape), tl.float32)


def _narrowed(handle: Any, to: Any) -> Any:
    values = torch.from_numpy(np.ascontiguousarray(handle.data, dtype=np.float32).copy())
    target = _NARROW[to]
    if target.itemsize == 1:
        most = torch.finfo(target).max
        values = torch.where(values.isnan(), values, values.clamp(-most, most))
    rounded = values.to(target)
    bits = rounded.view(torch.int16 if target.itemsize == 2 else torch.uint8).numpy()
    kept = bits.view(interpreter._get_np_dtype(to)).reshape(handle.data.shape)
    return interpreter.TensorHandle(kept, to)


def mend() -> None:
    """Mend the interpreter of this process, once."""
    builder = interpreter.InterpreterBuilder
    if getattr(builder, "pagemill_mended", False):
        return
    builder.pagemill_mended = True
    _mend_arithmetic(builder)
    _mend_sums()
    _speed_up()
    _keep_quiet()
    for name, function in _ELEMENTWISE.items():
        setattr(libdevice, name, _elementwise(function or _erf))


def _mend_arithmetic(builder: Any) -> None:
    binary, unary, cast = builder.binary_op, builder.unary_op, builder.cast_impl
    from_float, dot = builder.create_fp_to_fp, builder.create_dot

    def binary_op(self: Any, left: Any, right: Any, op: Any) -> Any:
        narrow = _is_narrow(left) and _is_narrow(right)
        if narrow:
            result = binary(self, _widened(left), _widened(right), op)
        else:
            result = binary(self, left, right, op)
        if op in _COMPARISONS:
            # As it comes it has the type of what was compared, and broadcast, becomes such numbers.
            return interpreter.TensorHandle(result.data, tl.int1)
        return _narrowed(result, left.dtype.scalar) if narrow else result

    def unary_op(self: Any, value: Any, op: Any) -> Any:
        if not _is_narrow(value):
            return unary(self, value, op)
        return _narrowed(unary(self, _widened(value), op), value.dtype.scalar)

    def cast_impl(self: Any, source: Any, to: Any) -> Any:
        scalar = to.scalar
        if _is_narrow(source):
            wide = _widened(source)
            if scalar in _NARROW:
                return _narrowed(wide, scalar)
            return wide if scalar == tl.float32 else cast(self, wide, to)
        if scalar in _NARROW:
            return _narrowed(cast(self, source, tl.float32), scalar)
        return cast(self, source, to)

    def fp_to_fp(self: Any, source: Any, to: Any, rounding: Any) -> Any:
        if _is_narrow(source) or to.scalar in _NARROW:
            return cast_impl(self, source, to)
        return from_float(self, source, to, rounding)

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, most: Any) -> Any:
        a, b = (_widened(x) if _is_narrow(x) else x for x in (a, b))
        return dot(self, a, b, d, precision, most)

    builder.binary_op, builder.unary_op, builder.cast_impl = binary_op, unary_op, cast_impl
    builder.create_fp_to_fp, builder.create_dot = fp_to_fp, create_dot
    for name in _CASTS:
        setattr(builder, name, lambda self, source, to: self.cast_impl(source, to))


def _mend_sums() -> None:
    reduce = interpreter.ReduceOps.apply_impl

    def apply_impl(self: Any, inputs: Any) -> Any:
        if not any(_is_narrow(x.handle) for x in inputs):
            return reduce(self, inputs)
        wide = tuple(
            tl.core.tensor(_widened(x.handle), tl.block_type(tl.float32, list(x.shape)))
            if _is_narrow(x.handle)
            else x
            for x in inputs
        )
        found = reduce(self, wide)
        found = list(found) if isinstance(found, list | tuple) else [found]
        for i, x in enumerate(inputs[: len(found)]):
            if _is_narrow(x.handle):
                shape = list(found[i].shape)
                kind = tl.block_type(x.dtype, shape) if shape else x.dtype
                found[i] = tl.core.tensor(_narrowed(found[i].handle, x.handle.dtype.scalar), kind)
        return tuple(found)

    interpreter.ReduceOps.apply_impl = apply_impl


def _speed_up() -> None:
    """No checks for overflow; and the language is patched once a launch, not at nested calls."""
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )
    patch_language = interpreter._patch_lang
    languages = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})

    def patch(_: Any) -> Any:
        scope = patch_language(languages)
        # 3.6 takes an int of an array of size 1, which numpy refuses from 2.4 on.
        scope.set_attr(tl.tensor, "__index__", _as_index)
        return scope

    interpreter._patch_lang = patch
    interpreter.InterpretedFunction.__call__ = lambda self, *a, **k: self.rewrite()(*a, **k)


def _keep_quiet() -> None:
    """Numbers without meaning overflow without a word, as they do on a device."""
    run = interpreter.GridExecutor.__call__

    def call(self: Any, *arguments: Any, **constants: Any) -> Any:
        with np.errstate(all="ignore"):
            return run(self, *arguments, **constants)

    interpreter.GridExecutor.__call__ = call


def _as_index(value: Any) -> int:
    return int(np.asarray(value.handle.data).reshape(-1)[0])


def _erf(x: np.ndarray) -> np.ndarray:
    return torch.special.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def _elementwise(function: Any) -> Any:
    def call(x: Any, *_: Any, _semantic: Any = None, **__: Any) -> Any:
        data = function(x.handle.data).astype(x.handle.data.dtype)
        return tl.core.tensor(interpreter.TensorHandle(data, x.handle.dtype), x.type)

    return call
