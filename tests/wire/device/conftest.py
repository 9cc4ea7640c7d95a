"""Virtual phones behind a real adb server, for the modules of this folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.device.adb import Adb, AdbDevice
from harness.device.phone import LeasedPhone
from harness.pool.local import PhoneInfo, acquire, discover
from harness.virtual.lab import PhoneSpec, VirtualLab, VirtualPhone


def benchmark(name: str) -> ModuleType:
    """A module of ``benchmarks/``."""
    folder = str(Path(__file__).resolve().parents[3] / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model on the stand-in QNN library: an artifact, and the runner with its libraries."""
    return benchmark("phones_standin").make_model(tmp_path_factory.mktemp("standin"))


@pytest.fixture(scope="module")
def matrix(lab: VirtualLab, standin: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Faults at stages of runs on the lab's one phone, as ``make bench-phones`` tries them."""
    faults: Any = benchmark("phones_faults")
    runs: Any = benchmark("phones_matrix")
    with runs.shorter_limits():
        yield runs.Matrix(lab, lab.state_dir, standin, tmp_path_factory.mktemp("matrix"), seed=faults.SAMPLE_SEED)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualLab]:
    with VirtualLab.start(tmp_path_factory.mktemp("lab"), [PhoneSpec(marker="gen3")]) as started:
        yield started


@pytest.fixture
def virtual(lab: VirtualLab) -> Iterator[VirtualPhone]:
    """The phone's far end: faults are set here, and none is left for the next test."""
    yield lab.phones[0]
    lab.phones[0].clear_faults()


@pytest.fixture
def device(lab: VirtualLab, virtual: VirtualPhone) -> AdbDevice:
    return Adb(lab.adb_host, lab.adb_port).device(virtual.transport)


@pytest.fixture
def info(lab: VirtualLab) -> PhoneInfo:
    return discover(lab.adb_host, lab.adb_port)[0]


@pytest.fixture
def phone(lab: VirtualLab, info: PhoneInfo, tmp_path: Path, virtual: VirtualPhone) -> Iterator[LeasedPhone]:
    assert info.facts is not None
    assert info.facts.serial == virtual.serial
    with acquire(
        info.facts, holder="a test", adb_host=lab.adb_host, adb_port=lab.adb_port, state_dir=tmp_path / "state"
    ) as leased:
        yield leased
