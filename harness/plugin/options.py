"""Command-line options of the suites, and what they come to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from harness.record.vocabulary import Family


class PhoneChoice(StrEnum):
    AUTO = "auto"
    """Attached phones; with none attached, virtual ones, said aloud."""
    ATTACHED = "attached"
    VIRTUAL = "virtual"


class Spread(StrEnum):
    ANY = "any"
    """Each cell once, on some matching phone."""
    EACH = "each"
    """Each cell on every matching phone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    phones: PhoneChoice
    require_device: bool
    spread: Spread
    release: bool
    adb_host: str
    adb_port: int
    results: Path
    artifacts: Path
    models: Path
    limits: Path
    journal: Path | None
    """Judge this stored journal instead of running"""

    @property
    def required(self) -> frozenset[Family]:
        """Families whose metrics must pass."""
        families = {Family.ACCURACY, Family.PLACEMENT}
        if self.release:
            families.add(Family.PERFORMANCE)
        return frozenset(families)


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("snapgate", "SnapGate: models on phones")
    group.addoption(
        "--phones",
        choices=[str(choice) for choice in PhoneChoice],
        default=str(PhoneChoice.AUTO),
        help="auto: attached phones, or virtual ones if none is attached; attached; virtual (default: auto)",
    )
    group.addoption("--require-device", action="store_true", help="fail (exit code 11) if no real phone is attached")
    group.addoption(
        "--spread",
        choices=[str(choice) for choice in Spread],
        default=str(Spread.ANY),
        help="any: each cell once, on some matching phone; each: on every matching phone (default: any)",
    )
    group.addoption("--release", action="store_true", help="performance must pass too, not only accuracy and placement")
    group.addoption("--adb-host", default="127.0.0.1", help="host of the adb server (default: 127.0.0.1)")
    group.addoption(
        "--adb-port",
        type=int,
        default=int(os.environ.get("ANDROID_ADB_SERVER_PORT", "5037")),
        help="port of the adb server (default: ANDROID_ADB_SERVER_PORT, or 5037)",
    )
    group.addoption("--results", type=Path, default=Path("out"), metavar="DIR", help="where to write (default: out)")
    group.addoption(
        "--artifacts", type=Path, default=Path("artifacts"), metavar="DIR", help="prepared models (default: artifacts)"
    )
    group.addoption(
        "--models", type=Path, default=None, metavar="FILE", help="model catalogue (default: models/catalogue.toml)"
    )
    group.addoption("--limits", type=Path, default=None, metavar="FILE", help="limits (default: suites/limits.toml)")
    group.addoption(
        "--journal",
        type=Path,
        default=None,
        metavar="DIR",
        help="judge this stored journal; nothing runs, no phone is used",
    )
    group.addoption("--snapgate", action="store_true", help="take part even if no test below suites/ was asked for")


def read_settings(config: pytest.Config) -> Settings:
    root = config.rootpath
    models: Path | None = config.getoption("--models")
    limits: Path | None = config.getoption("--limits")
    journal: Path | None = config.getoption("--journal")
    return Settings(
        phones=PhoneChoice(config.getoption("--phones")),
        require_device=config.getoption("--require-device"),
        spread=Spread(config.getoption("--spread")),
        release=config.getoption("--release"),
        adb_host=config.getoption("--adb-host"),
        adb_port=config.getoption("--adb-port"),
        results=Path(config.getoption("--results")).resolve(),
        artifacts=Path(config.getoption("--artifacts")).resolve(),
        models=(models or root / "models" / "catalogue.toml").resolve(),
        limits=(limits or root / "suites" / "limits.toml").resolve(),
        journal=None if journal is None else journal.resolve(),
    )


def suites_asked_for(config: pytest.Config) -> bool:
    """Whether this pytest run is about models on phones: a path below suites/ was named, or --snapgate given."""
    if config.getoption("--snapgate"):
        return True
    suites = config.rootpath / "suites"
    for argument in config.args:
        path = Path(str(argument).split("::")[0])
        if not path.is_absolute():
            path = config.invocation_params.dir / path
        if path.resolve().is_relative_to(suites):
            return True
    return False
