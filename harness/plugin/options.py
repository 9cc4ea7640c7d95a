"""Command-line options of the suites, and what they come to."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest

from harness.device.changes import Change
from harness.device.fitness import PROCEED, WAIT, Demand, Policy
from harness.errors import UserError
from harness.measure.paired import LOOKS, SMALLEST_EFFECT
from harness.record.vocabulary import Family
from harness.run.tuning import AS_THE_SUITE, Tuning, read_tuning

BUDGET_PAIRS: Final = LOOKS[-1]
BUDGET_S: Final = 2 * 3600.0
RECONNECT_S: Final = 60.0
OF_THE_OUTPUT: Final = frozenset({"accuracy", "smoke", "edges", "tasks", "toy"})
"""Workloads whose gates are about the output: heat does not change it."""


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
    ab: Path | None = None
    """Baseline of an A/B comparison: an artifact, or a folder of artifacts as ``artifacts``"""
    baselines: tuple[Path, ...] = ()
    """For limits against a baseline"""
    resume: str | None = None
    """Session to go on with; ``last``: the newest of the results folder"""
    plan: bool = False
    """Say what would run; run nothing"""
    thorough: bool = False
    """The long suites too"""
    conditions: Policy | None = None
    """When a phone is not fit to be measured; None: as the suite has it"""
    conditions_s: float = WAIT.longest_s
    precisions: tuple[str, ...] = ()
    """Of the catalogue; empty: those that run by default"""
    reconnect_s: float = RECONNECT_S
    """How long a phone that was lost in a run is waited for, before the run is tried once more"""
    changes: tuple[Change, ...] = ()
    """Set on each phone for its runs"""
    tuning: Tuning = AS_THE_SUITE
    """How the runner is to behave in each run, where the user has a say"""
    ab_pairs: int = BUDGET_PAIRS
    ab_budget_s: float = BUDGET_S
    smallest_effect: float = SMALLEST_EFFECT

    @property
    def required(self) -> frozenset[Family]:
        """Families whose metrics must pass."""
        families = {Family.ACCURACY, Family.PLACEMENT}
        if self.release:
            families.add(Family.PERFORMANCE)
        return frozenset(families)

    def demand(self, workload: str, *, virtual: bool) -> Demand:
        """Suites of speed wait, those of the output proceed, and nobody waits for a virtual phone unless told to."""
        if self.conditions is not None:
            return Demand(policy=self.conditions, longest_s=self.conditions_s, window_s=1 if virtual else WAIT.window_s)
        return PROCEED if virtual or workload in OF_THE_OUTPUT else replace(WAIT, longest_s=self.conditions_s)


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
        default=os.environ.get("ANDROID_ADB_SERVER_PORT", "5037"),
        help="port of the adb server (default: ANDROID_ADB_SERVER_PORT, or 5037)",
    )
    group.addoption("--results", type=Path, default=Path("out"), metavar="DIR", help="where to write (default: out)")
    group.addoption(
        "--artifacts", type=Path, default=Path("artifacts"), metavar="DIR", help="prepared models (default: artifacts)"
    )
    group.addoption(
        "--models", type=Path, default=None, metavar="FILE", help="model catalogue (default: models/catalogue.toml)"
    )
    group.addoption(
        "--precision",
        action="append",
        default=[],
        metavar="NAME",
        help="run models of this precision only, or of `all`; may be repeated (default: all that the catalogue does "
        "not mark default = false)",
    )
    group.addoption("--limits", type=Path, default=None, metavar="FILE", help="limits (default: suites/limits.toml)")
    group.addoption(
        "--journal",
        type=Path,
        default=None,
        metavar="DIR",
        help="judge this stored journal; nothing runs, no phone is used",
    )
    group.addoption(
        "--baseline",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help='of `snapgate baseline promote`, for limits with against = "baseline"; may be repeated',
    )
    group.addoption(
        "--resume",
        nargs="?",
        const="last",
        default=None,
        metavar="SESSION",
        help="go on with a stopped session of --results (default: the newest); what is finished is not run again",
    )
    group.addoption("--plan", action="store_true", help="say what would run where, and how long it takes; run nothing")
    group.addoption(
        "--thorough",
        action="store_true",
        help="the long suites too: edges, task sets, sweep, sustained load, power, endurance (hours on a phone)",
    )
    group.addoption(
        "--ab",
        type=Path,
        default=None,
        metavar="DIR",
        help="compare the candidates in --artifacts with this baseline, interleaved on one phone: an artifact, or a "
        "folder of artifacts with the same names; nothing else is run",
    )
    group.addoption(
        "--ab-pairs",
        type=int,
        default=BUDGET_PAIRS,
        metavar="N",
        help="budget of pairs of an A/B comparison, even; it ends sooner when it is decided (default: %(default)s)",
    )
    group.addoption(
        "--ab-minutes",
        type=float,
        default=BUDGET_S / 60,
        metavar="MIN",
        help="budget of time of an A/B comparison (default: %(default)g)",
    )
    group.addoption(
        "--smallest-effect",
        type=float,
        default=100 * SMALLEST_EFFECT,
        metavar="PERCENT",
        help="how much worse the candidate has to be to matter (default: %(default)g)",
    )
    group.addoption(
        "--conditions",
        choices=["suite", *(str(policy) for policy in Policy)],
        default="suite",
        help="a phone that is hot, busy, lit or limited: wait, refuse, or proceed, which makes speed, heat and power "
        "INVALID (default: suites of speed wait, those of the output proceed)",
    )
    group.addoption(
        "--conditions-minutes",
        type=float,
        default=WAIT.longest_s / 60,
        metavar="MIN",
        help="the longest wait before one run (default: %(default)g)",
    )
    group.addoption(
        "--reconnect-seconds",
        type=float,
        default=RECONNECT_S,
        metavar="S",
        help="how long a phone that was lost in a run is waited for, before the run is tried once more "
        "(default: %(default)g)",
    )
    group.addoption(
        "--set-phone",
        action="append",
        choices=[str(change) for change in Change],
        default=[],
        help="set this on the phone for each run and put it back after it; may be repeated",
    )
    group.addoption(
        "--runner-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the runner, for every run: performance_mode, memory, prefetch, graph_priority, cpu_affinity, ... "
        "(docs/suites.md); may be repeated",
    )
    group.addoption(
        "--pace-tps",
        type=float,
        metavar="N",
        help="tokens a second of the part of the sustained suite that shows what a slower pace spares in heat "
        "(default: 70 %% of the sustained speed)",
    )
    group.addoption("--snapgate", action="store_true", help="take part even if no test below suites/ was asked for")


def read_settings(config: pytest.Config) -> Settings:
    root = config.rootpath
    models: Path | None = config.getoption("--models")
    limits: Path | None = config.getoption("--limits")
    journal: Path | None = config.getoption("--journal")
    ab: Path | None = config.getoption("--ab")
    _check_ab(config, ab, journal)
    return Settings(
        phones=PhoneChoice(config.getoption("--phones")),
        require_device=config.getoption("--require-device"),
        spread=Spread(config.getoption("--spread")),
        release=config.getoption("--release"),
        adb_host=config.getoption("--adb-host"),
        adb_port=_port(config.getoption("--adb-port")),
        results=Path(config.getoption("--results")).resolve(),
        artifacts=Path(config.getoption("--artifacts")).resolve(),
        models=(models or root / "models" / "catalogue.toml").resolve(),
        limits=(limits or root / "suites" / "limits.toml").resolve(),
        journal=None if journal is None else journal.resolve(),
        ab=None if ab is None else ab.resolve(),
        baselines=tuple(path.resolve() for path in config.getoption("--baseline")),
        resume=config.getoption("--resume"),
        plan=config.getoption("--plan"),
        thorough=config.getoption("--thorough"),
        conditions=None if config.getoption("--conditions") == "suite" else Policy(config.getoption("--conditions")),
        conditions_s=60.0 * config.getoption("--conditions-minutes"),
        precisions=tuple(config.getoption("--precision")),
        reconnect_s=_seconds(config.getoption("--reconnect-seconds")),
        changes=tuple(Change(name) for name in config.getoption("--set-phone")),
        tuning=read_tuning(config.getoption("--runner-option"), config.getoption("--pace-tps")),
        ab_pairs=config.getoption("--ab-pairs"),
        ab_budget_s=60.0 * config.getoption("--ab-minutes"),
        smallest_effect=config.getoption("--smallest-effect") / 100,
    )


def _seconds(value: float) -> float:
    if not 0 <= value < math.inf:
        raise UserError("--reconnect-seconds out of range", found=f"{value:g}", expected="0 or more")
    return value


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise UserError(
            "the port of the adb server is no port",
            found=repr(text),
            expected="1 to 65535",
            next_step="correct --adb-port, or the variable ANDROID_ADB_SERVER_PORT",
        )
    return int(text)


def _check_ab(config: pytest.Config, ab: Path | None, journal: Path | None) -> None:
    pairs, minutes = config.getoption("--ab-pairs"), config.getoption("--ab-minutes")
    effect = config.getoption("--smallest-effect")
    if pairs < 2 or pairs % 2 or pairs > BUDGET_PAIRS:
        raise UserError("--ab-pairs out of range", found=str(pairs), expected=f"an even number, 2 to {BUDGET_PAIRS}")
    if not minutes > 0:
        raise UserError("--ab-minutes out of range", found=f"{minutes:g}", expected="more than 0")
    if not 0 < effect < 100:
        raise UserError("--smallest-effect out of range", found=f"{effect:g}", expected="more than 0, less than 100 %")
    if journal is not None and config.getoption("--resume") is not None:
        raise UserError("--resume and --journal were both given", expected="one of them")
    if ab is None:
        return
    if journal is not None:
        raise UserError(
            "--ab and --journal were both given",
            expected="one of them",
            next_step="a stored comparison is judged by --journal alone",
        )
    if not ab.is_dir():
        raise UserError(
            f"--ab {ab}: no such folder",
            expected="an artifact of `snapgate prepare`, or a folder of them",
            next_step="prepare the baseline with another --out, and name that folder",
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
