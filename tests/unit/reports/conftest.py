"""The journals of ``journals.py`` for the tests of this folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def journals() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report_journals", Path(__file__).with_name("journals.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
