"""The host around a run: who disturbed it."""

from __future__ import annotations

from harness.run.host import HostSnapshot, host_snapshot, host_state


def snapshot(at: float, cpu_s: dict[tuple[int, float], tuple[str, float]]) -> HostSnapshot:
    return HostSnapshot(at=at, load_1min=at, available_bytes=int(at), cpu_s=cpu_s)


def test_a_process_over_half_a_core_is_heavy_and_the_heaviest_comes_first() -> None:
    before = snapshot(0.0, {(1, 0.0): ("idle", 5.0), (2, 0.0): ("busy", 10.0)})
    after = snapshot(10.0, {(1, 0.0): ("idle", 10.0), (2, 0.0): ("busy", 15.1), (3, 9.0): ("newcomer", 9.0)})
    assert host_state(before, after).heavy_processes == ("newcomer", "busy")


def test_a_new_process_with_an_old_pid_is_not_credited_with_its_predecessors_time() -> None:
    before = snapshot(0.0, {(7, 1.0): ("old", 100.0)})
    after = snapshot(10.0, {(7, 2.0): ("new", 9.0)})
    assert host_state(before, after).heavy_processes == ("new",)


def test_at_most_five_are_named() -> None:
    after = snapshot(1.0, {(i, 0.0): (f"p{i}", 1.0 + i) for i in range(8)})
    assert host_state(snapshot(0.0, {}), after).heavy_processes == ("p7", "p6", "p5", "p4", "p3")


def test_a_look_at_this_host_gives_plausible_figures() -> None:
    seen = host_snapshot()
    assert seen.available_bytes > 1_000_000
    assert seen.cpu_s
