"""The builders of the golden journals, for tests of self-checks and timing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def make() -> ModuleType:
    """The module ``tests/data/make_journals.py``."""
    path = Path(__file__).resolve().parents[2] / "data" / "make_journals.py"
    spec = importlib.util.spec_from_file_location("make_journals", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
