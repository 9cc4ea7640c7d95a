"""What is asked of the platform (votes, priority, profile, cores), and what is written of its answers."""

from __future__ import annotations

import dataclasses
import json
import os
import signal

import pytest

from harness.record.job import Prompt, RunOptions
from harness.run.blame import count_records

pytestmark = pytest.mark.lane("build")


def prompt(n_prompt=5, n_gen=2, **options):
    tokens = tuple((7 * i + 3) % 32 for i in range(n_prompt))
    return Prompt(prompt_id="p", mode="generate", tokens=tokens, n_gen=n_gen, ignore_eos=True, **options)


def traced(standin, job, **environment):
    trace = standin.folder / "trace"
    trace.unlink(missing_ok=True)
    outcome = standin.run(job, environment={"FAKE_QNN_TRACE": str(trace), **environment})
    assert "standin violation" not in outcome.stderr
    return outcome, trace.read_text().splitlines()


def votes(calls):
    return [call.removeprefix("setPowerConfig option ") for call in calls if call.startswith("setPowerConfig")]


def settings(outcome):
    return {setting.name: setting for setting in outcome.log.control.settings}


@pytest.mark.parametrize(
    ("mode", "clocks", "others"),
    [
        ("burst", "1 dcvs 0 latency 40 bus 160 core 160", ["2 us 40", "3 us 9999"]),
        ("sustained_high_performance", "1 dcvs 0 latency 40 bus 160 core 160", ["2 us 40", "3 us 9999"]),
        ("high_performance", "1 dcvs 0 latency 100 bus 128 core 128", ["2 us 100", "3 us 9999"]),
        ("balanced", "1 dcvs 1 latency 1000 bus 112 core 112", []),
        ("low_balanced", "1 dcvs 1 latency 1000 bus 96 core 96", []),
        ("high_power_saver", "1 dcvs 1 latency 1000 bus 80 core 80", []),
        ("power_saver", "1 dcvs 1 latency 1000 bus 64 core 64", []),
        ("low_power_saver", "1 dcvs 1 latency 1000 bus 48 core 48", []),
        ("extreme_power_saver", "1 saver dcvs 1 latency 1000 bus 16 core 16", []),
    ],
)
def test_each_mode_votes_for_its_clocks_and_takes_the_vote_back(quantised, record_schema, mode, clocks, others):
    outcome, calls = traced(quantised, quantised.job(prompt(), performance_mode=mode))
    assert outcome.returncode == 0, outcome.stderr
    assert votes(calls) == [clocks, *others]
    assert calls[-4:] == ["destroyPowerConfigId", "deviceFree", "backendFree", "logFree"]
    assert (outcome.log.platform.performance_mode, outcome.log.platform.performance_accepted) == (mode, True)
    assert all(setting.accepted and setting.in_force is None for setting in outcome.log.control.settings)
    for line in outcome.lines:
        record_schema.validate(json.loads(line))


def test_latency_and_polling_of_the_job_come_before_those_of_the_mode(quantised):
    options = RunOptions(sleep_latency_us=77, rpc_polling_us=500)
    outcome, calls = traced(quantised, quantised.job(prompt(), performance_mode="balanced", options=options))
    assert votes(calls) == ["1 dcvs 1 latency 77 bus 112 core 112", "3 us 500"]
    assert settings(outcome)["rpc_polling"].asked == "500 us"
    options = RunOptions(rpc_polling_us=0)
    outcome, calls = traced(quantised, quantised.job(prompt(), performance_mode="burst", options=options))
    assert votes(calls) == ["1 dcvs 0 latency 40 bus 160 core 160", "2 us 40"]


def test_latency_without_a_vote_is_refused(quantised):
    outcome = quantised.run(quantised.job(prompt(), options=RunOptions(sleep_latency_us=100)))
    assert (outcome.log.fault.error, outcome.log.fault.where) == ("JOB_INVALID", "job.options")


def test_a_refusal_names_the_part_and_the_code(quantised):
    job = quantised.job(prompt(), performance_mode="burst")
    outcome, _ = traced(quantised, job, FAKE_QNN_FAIL="setPowerConfig:3:13002")
    assert outcome.returncode == 0
    assert {name: s.accepted for name, s in settings(outcome).items()} == {
        "clocks": True, "rpc_latency": True, "rpc_polling": False,
    }  # fmt: skip
    refused = settings(outcome)["rpc_polling"]
    assert (refused.qnn_code, refused.qnn_name) == (13002, "POWER_UNSUPPORTED_CONFIG")
    assert outcome.log.platform.performance_accepted is False


def test_a_hung_call_gives_the_vote_back(quantised):
    job = quantised.job(prompt(), performance_mode="burst", options=RunOptions(watchdog_s=2.0))
    outcome, calls = traced(quantised, job, FAKE_QNN_HANG="graphExecute:2")
    assert outcome.returncode == 41
    assert calls[-1] == "destroyPowerConfigId"
    assert calls.count("destroyPowerConfigId") == 1


def test_a_vote_that_cannot_be_given_back_does_not_keep_a_hung_run(quantised):
    job = quantised.job(prompt(), performance_mode="burst", options=RunOptions(watchdog_s=2.0))
    outcome, calls = traced(quantised, job, FAKE_QNN_HANG="graphExecute:2,destroyPowerConfigId:1")
    assert outcome.returncode == 41
    assert calls[-1] == "destroyPowerConfigId"


def test_a_crash_gives_the_vote_back(host_build, stand_in_class, tmp_path):
    standin = stand_in_class(host_build, tmp_path)
    outcome, calls = traced(standin, standin.job(prompt(), performance_mode="burst"), FAKE_QNN_CRASH="graphExecute:2")
    assert outcome.returncode == -signal.SIGSEGV
    assert calls[-1] == "destroyPowerConfigId"


@pytest.mark.parametrize(("priority", "value"), [("low", 0), ("normal", 100), ("normal_high", 150), ("high", 200)])
def test_a_priority_is_set_on_every_graph(quantised, priority, value):
    job = quantised.job(prompt(), options=RunOptions(graph_priority=priority))
    outcome, calls = traced(quantised, job)
    assert [call for call in calls if call.startswith("graphSetConfig")] == [
        f"graphSetConfig option 3 value {value}"
    ] * 2
    assert settings(outcome)["graph_priority ar4"].accepted
    outcome, _ = traced(quantised, job, FAKE_QNN_FAIL="graphSetConfig:2:1000")
    assert outcome.returncode == 0
    assert [(s.accepted, s.qnn_name) for s in outcome.log.control.settings] == [(True, None), (False, "NOT_SUPPORTED")]
    outcome, _ = traced(quantised, job, FAKE_QNN_NULL="graphSetConfig")
    assert outcome.returncode == 0
    assert {s.accepted for s in outcome.log.control.settings} == {False}


@pytest.mark.parametrize(("level", "number"), [("basic", 1), ("detailed", 2), ("linting", 7001)])
def test_a_profile_has_the_cycles_of_each_operator(quantised, record_schema, level, number):
    job = quantised.job(prompt(warmups=1, repetitions=1), options=RunOptions(profiling=level))
    outcome, calls = traced(quantised, job)
    assert outcome.returncode == 0, outcome.stderr
    assert calls.count(f"profileCreate level {number}") == 2
    assert calls.count("profileFree") == 2
    profiles = outcome.log.profiles
    assert [(p.graph, p.warmup, p.repetition) for p in profiles] == [
        ("ar1", True, 0), ("ar4", True, 0), ("ar1", False, 0), ("ar4", False, 0),
    ]  # fmt: skip
    assert {p.level for p in profiles} == {level}
    assert [p.position for p in profiles] == [5, 4, 5, 4]  # chunks at 0 and 4, then one step at 5
    assert [(e.name, e.unit, e.depth) for e in profiles[0].events] == [
        ("", "us", 0), ("node_1:OpId_1 (cycles)", "cycles", 1), ("node_2:OpId_2 (cycles)", "cycles", 1),
    ]  # fmt: skip
    assert [e.value for e in profiles[0].events][1:] == [1000, 2000]
    assert count_records(outcome.log) == outcome.log.end.n_records == len(outcome.lines) - 1
    assert outcome.log.generations[0].heap_allocations == 0 or quantised.build.preset != "host"
    for line in outcome.lines:
        record_schema.validate(json.loads(line))


@pytest.mark.parametrize(
    "environment", [{"FAKE_QNN_FAIL": "profileCreate:1:12000"}, {"FAKE_QNN_NULL": "profileCreate"}]
)
def test_a_library_that_makes_no_profile_is_used_without(quantised, environment):
    job = quantised.job(prompt(), options=RunOptions(profiling="detailed"))
    outcome, _ = traced(quantised, job, **environment)
    assert outcome.returncode == 0
    assert settings(outcome)["profiling ar4"].accepted is False
    assert len(outcome.log.profiles) == (1 if "FAKE_QNN_FAIL" in environment else 0)


def test_cores_are_bound_and_read_back(quantised):
    core = min(os.sched_getaffinity(0))
    outcome = quantised.run(quantised.job(prompt(), options=RunOptions(cpu_affinity=(core,))))
    assert settings(outcome)["cpu_affinity"] == dataclasses.replace(
        settings(outcome)["cpu_affinity"], asked=str(core), accepted=True, in_force=str(core)
    )
    outcome = quantised.run(quantised.job(prompt(), options=RunOptions(cpu_affinity=(1023,))))
    assert outcome.returncode == 0
    refused = settings(outcome)["cpu_affinity"]
    assert (refused.asked, refused.accepted) == ("1023", False)
    assert str(core) in refused.in_force.split(",")


def test_the_vtcm_a_graph_was_compiled_for_is_recorded(quantised):
    outcome = quantised.run(quantised.job(prompt()))
    assert [context.vtcm_bytes for context in outcome.log.contexts] == [(8 << 20,), (8 << 20,)]
