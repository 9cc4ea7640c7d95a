"""Eight phones on one host."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.errors import LeaseError
from harness.pool.local import acquire, discover
from harness.record.run import DeviceFacts
from harness.virtual.lab import PhoneSpec, VirtualLab

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.slow, pytest.mark.xdist_group("wire-many")]

SOON_S = 3.0


def test_eight_phones_are_found_in_under_3_seconds_and_each_is_leased_once(tmp_path: Path) -> None:
    markers = ("sd888", "gen1", "gen1p", "gen2", "gen3", "gen3s", "gen3p7", "gen4s")
    with VirtualLab.start(tmp_path / "lab", [PhoneSpec(marker=marker) for marker in markers]) as lab:
        took = []
        for _ in range(5):
            began = time.monotonic()
            found = discover(lab.adb_host, lab.adb_port)
            took.append(time.monotonic() - began)
        facts = [info.facts for info in found if info.usable and info.facts is not None]
        assert {fact.part for fact in facts} == {
            *("SM8350", "SM8450", "SM8475", "SM8550", "SM8650", "SM8635", "SM7675", "SM8735"),
        }
        # The host may be busy with other tests; what it can do is the least of several tries.
        assert min(took) < SOON_S, took

        def take(fact: DeviceFacts) -> object:
            try:
                return acquire(
                    fact,
                    holder="test",
                    adb_host=lab.adb_host,
                    adb_port=lab.adb_port,
                    state_dir=tmp_path / "state",
                )
            except LeaseError as exc:
                return exc

        with ThreadPoolExecutor(16) as workers:
            outcomes = list(workers.map(take, [*facts, *facts]))
        refused = [outcome for outcome in outcomes if isinstance(outcome, LeaseError)]
        assert len(refused) == len(facts)
        for outcome in outcomes:
            if not isinstance(outcome, LeaseError):
                outcome.release()  # type: ignore[attr-defined]
        print("discovered in", [round(seconds, 2) for seconds in took], "s")
