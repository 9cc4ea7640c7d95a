"""``snapgate baseline``: promoted with a reason, compared only with its like."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from scipy import stats

from harness.cli.main import main
from harness.errors import UserError
from harness.journal import Journal, JournalWriter
from harness.record.run import RunError
from harness.record.runner import Control, ControlSetting
from harness.record.vocabulary import Source, Status
from harness.results.baseline import judge_against, promote

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When the synthetic runs were started"""
BASES = (20.0, 20.1, 19.9, 20.2, 19.8, 20.0)


def journal_of(make, bases=BASES, name="s", **changes):
    runs = [dataclasses.replace(run, source=Source.PHONE, **changes) for run in make.three_runs(name, bases)]
    return Journal(runs=tuple(runs))


def slower(percent):
    return tuple(base * (1 + percent / 100) for base in BASES)


def judged(make, new, *, old=None, days=1.0, **options):
    baseline = promote(old or journal_of(make), reason="release 1", now=START)
    return judge_against(new, baseline, now=START + timedelta(days=days), **options)


def decode(verdict):
    (found,) = [v for v in verdict.verdicts if v.metric == "decode_tps"]
    return found


@pytest.mark.parametrize(
    ("percent", "status"), [(0, Status.PASS), (-20, Status.PASS), (5, Status.INCONCLUSIVE), (12, Status.FAIL)]
)
def test_a_harm_is_judged_by_its_whole_interval(make, percent, status):
    assert decode(judged(make, journal_of(make, slower(percent)))).status is status


def test_the_interval_is_welchs_of_the_logarithms(make):
    new = (22.0, 22.5, 21.5, 22.0, 22.2, 21.9)
    found = decode(judged(make, journal_of(make, new)))
    t = stats.ttest_ind(np.log(new), np.log(BASES), equal_var=False)
    low, high = t.confidence_interval(0.95)
    assert found.value == pytest.approx(100 * np.expm1(np.mean(np.log(new)) - np.mean(np.log(BASES))), rel=1e-4)
    assert found.interval == pytest.approx((100 * np.expm1(low), 100 * np.expm1(high)), rel=1e-3)


def test_a_wider_slack_lets_it_pass(make):
    assert decode(judged(make, journal_of(make, slower(12)), slack_percent=20)).status is Status.PASS


def test_the_age_is_shown_and_too_old_decides_nothing(make):
    verdict = judged(make, journal_of(make, slower(12)), days=31)
    assert decode(verdict).status is Status.INCONCLUSIVE
    assert "31.0 days old, at most 30 count" in decode(verdict).reason
    assert any("31.0 days old, promoted because: release 1" in note for note in verdict.notes)
    assert decode(judged(make, journal_of(make, slower(12)), days=29)).status is Status.FAIL


SAME = ("workload", "serial", "fingerprint", "performance_mode", "memory", "control", "n_cached")


@pytest.mark.parametrize("field", SAME)
def test_another_identity_is_incomparable_and_named(make, field):
    new = journal_of(make)
    names = {"fingerprint": "android_build", "n_cached": "cached_tokens"}

    def changed(run):
        if field == "workload":
            return dataclasses.replace(run, workload="other")
        if field in ("serial", "fingerprint"):
            return dataclasses.replace(run, device=dataclasses.replace(run.device, **{field: "other"}))
        if field in ("performance_mode", "memory"):
            platform = dataclasses.replace(run.log.platform, **{field: "other"})
            return dataclasses.replace(run, log=dataclasses.replace(run.log, platform=platform))
        if field == "control":
            setting = ControlSetting(
                name="cpu_affinity", asked="4,5", accepted=True, in_force="4,5", qnn_code=None, qnn_name=None
            )
            return dataclasses.replace(run, log=dataclasses.replace(run.log, control=Control(settings=(setting,))))
        generations = tuple(dataclasses.replace(g, n_cached=g.n_cached + 1) for g in run.log.generations)
        return dataclasses.replace(run, log=dataclasses.replace(run.log, generations=generations))

    verdict = judged(make, Journal(runs=tuple(changed(run) for run in new.runs)))
    found = decode(verdict)
    assert found.status is Status.NOT_COVERED
    assert found.reason.startswith(f"incomparable: {names.get(field, field)} is ")
    assert ";" not in found.reason


def test_another_artifact_is_what_is_compared(make):
    assert decode(judged(make, journal_of(make, artifact_id="f" * 16))).status is Status.PASS


def test_a_refuted_speed_is_invalid_and_cannot_be_promoted(make):
    hot = dataclasses.replace(journal_of(make).runs[0].conditions, violations=("hot",))
    assert decode(judged(make, journal_of(make, conditions=hot))).status is Status.INVALID
    with pytest.raises(UserError, match=r"cannot become a baseline.*conditions: hot"):
        promote(journal_of(make, conditions=hot), reason="r", now=START)


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_baseline_needs_a_reason(make, reason):
    with pytest.raises(UserError, match="needs a reason"):
        promote(journal_of(make), reason=reason, now=START)


def test_a_damaged_journal_is_neither_promoted_nor_passed(make):
    damaged = dataclasses.replace(journal_of(make), damaged=("x: cut short",))
    with pytest.raises(UserError, match="cut short"):
        promote(damaged, reason="r", now=START)
    assert judged(make, damaged).status is Status.INFRA


def test_a_failed_run_decides(make):
    new = journal_of(make)
    error = RunError(status=Status.INFRA, kind="PhoneLostError", message="gone")
    lost = dataclasses.replace(new.runs[0], run_id="lost", error=error)
    assert judged(make, Journal(runs=(*new.runs, lost))).status is Status.INFRA


def test_synthetic_data_never_releases(make):
    runs = tuple(make.three_runs("s", BASES))
    assert judged(make, Journal(runs=runs), old=Journal(runs=runs), release=True).status is Status.INVALID


@pytest.mark.parametrize("slack", [0, 100, -5])
def test_a_slack_out_of_range_is_refused(make, slack):
    with pytest.raises(UserError, match="slack"):
        judged(make, journal_of(make), slack_percent=slack)


def test_the_command_promotes_once_and_judges(make, tmp_path, capsys):
    for name, bases in (("old", BASES), ("new", slower(12))):
        writer = JournalWriter(tmp_path / name / f"{name}.jsonl")
        for entry in (make.session(name), *make.three_runs(name, bases)):
            writer.append(entry)
        writer.close()
    file = str(tmp_path / "b.json")
    old, new = (["--journal", str(tmp_path / name), "--baseline", file] for name in ("old", "new"))
    assert main(["baseline", "promote", *old, "--reason", "release 1"]) == 0
    before = (tmp_path / "b.json").read_bytes()
    assert main(["baseline", "promote", *new, "--reason", "quietly"]) == 20
    assert (tmp_path / "b.json").read_bytes() == before
    out = tmp_path / "out"
    assert main(["baseline", "gate", *new, "--max-age", "1e6", "--out", str(out)]) == 10
    assert sorted(p.name for p in out.iterdir()) == ["junit.xml", "verdict.json", "verdict.md"]
    assert main(["baseline", "gate", *old, "--max-age", "1e6"]) == 0
    assert main(["baseline", "gate", *old, "--max-age", "0.5"]) == 13
    assert main(["baseline", "promote", *new, "--reason", "on purpose", "--replace"]) == 0
    assert "on purpose" in (tmp_path / "b.json").read_text()


def test_a_file_that_is_no_baseline_is_refused(make, tmp_path, capsys):
    (tmp_path / "b.json").write_text("{}")
    assert main(["baseline", "gate", "--journal", str(tmp_path), "--baseline", str(tmp_path / "b.json")]) == 20
    assert "not a valid Baseline" in capsys.readouterr().err
