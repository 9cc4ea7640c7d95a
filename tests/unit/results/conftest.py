"""Builders of records: the golden journals' own, which these tests vary."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="session")
def make() -> ModuleType:
    """The module ``tests/data/make_journals.py``."""
    spec = importlib.util.spec_from_file_location("make_journals", DATA / "make_journals.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def journals() -> Path:
    return DATA / "journals"


@pytest.fixture(scope="session")
def performance_limits() -> Path:
    return DATA / "limits_performance.toml"
