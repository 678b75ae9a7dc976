"""Another distribution's `kernels` is noticed before anything runs."""

import pytest

import kernels
from engine.errors import EngineError
from engine.house import check_kernels_package

pytestmark = pytest.mark.quick


def test_our_own_package_passes():
    check_kernels_package()


def test_a_package_elsewhere_is_refused(monkeypatch):
    monkeypatch.setattr(kernels, "__file__", "/elsewhere/kernels/__init__.py")
    with pytest.raises(EngineError, match="pip uninstall kernels"):
        check_kernels_package()


def test_an_overwritten_package_is_refused(monkeypatch):
    monkeypatch.delattr(kernels, "DISTRIBUTION")
    with pytest.raises(EngineError, match="pip uninstall kernels"):
        check_kernels_package()
