"""What a phone's log says of a run that went wrong, in the words that phones use."""

from __future__ import annotations

import pytest

from harness.run.signs import read_signs

HEAD = "12-03 05:00:01.000  1000  1000"
TOMBSTONE = f"""\
{HEAD} F DEBUG   : *** *** *** *** *** *** ***
{HEAD} F DEBUG   : pid: 900, tid: 901, name: otherapp  >>> com.other <<<
{HEAD} F DEBUG   : signal 6 (SIGABRT), code -1 (SI_QUEUE), fault addr --------
{HEAD} F DEBUG   : pid: 2, tid: 2, name: snapgate-runner  >>> ./snapgate-runner <<<
{HEAD} F DEBUG   : signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x10
{HEAD} F DEBUG   :       #00 pc 0000beef  /data/local/tmp/libQnnHtp.so
{HEAD} F DEBUG   :       #01 pc 0000cafe  /data/local/tmp/snapgate-runner
{HEAD} E tombstoned: Tombstone written to: /data/tombstones/tombstone_07
"""
CRASHES = [
    "remoteproc remoteproc2: crash detected in 32300000.remoteproc-cdsp: type fatal error",
    "remoteproc remoteproc-cdsp: crash detected in 32300000.remoteproc-cdsp: type watchdog",
    "subsys-restart: subsystem_restart_dev(): Restart sequence requested for cdsp, restart_level = RELATED.",
    "adsprpc: fastrpc_restart_notifier_cb: cdsp subsystem is restarting: SSR",
    "vendor/qcom/proprietary/adsprpc/src/fastrpc_apps_user.c: cdsprpc SSR notification",
]
DENIAL = (
    f'{HEAD} W snapgate-runner: type=1400 audit(0.0:77): avc:  denied  {{ read }} for name="fastrpc-cdsp" dev="tmpfs" '
    "scontext=u:r:shell:s0 tcontext=u:object_r:qdsp_device:s0 tclass=chr_file permissive=0"
)


def test_the_tombstone_of_the_runner_is_read_and_no_other_programs() -> None:
    found = read_signs(TOMBSTONE, pid=2).tombstone
    assert found == (
        "signal 11 (SIGSEGV), code 1 (SEGV_MAPERR), fault addr 0x10; "
        "#00 pc 0000beef /data/local/tmp/libQnnHtp.so; /data/tombstones/tombstone_07"
    )
    assert read_signs(TOMBSTONE.replace("snapgate-runner  >>>", "third  >>>"), pid=77).tombstone is None


@pytest.mark.parametrize("line", CRASHES)
def test_a_crash_of_the_cdsp_is_seen_in_each_drivers_words(line: str) -> None:
    assert read_signs(f"noise\n{HEAD} E kernel: {line}\n", pid=2).dsp_crash is not None


@pytest.mark.parametrize(
    "line",
    [
        "remoteproc remoteproc-adsp: crash detected in adsp: type fatal error",
        "cdsprpc: opened a session on cdsp",
        "app: fatal error",
    ],
)
def test_other_lines_are_no_crash_of_the_cdsp(line: str) -> None:
    assert read_signs(f"{HEAD} E kernel: {line}\n", pid=2).dsp_crash is None


def test_a_denial_counts_when_it_is_the_runners() -> None:
    assert read_signs(DENIAL.replace("for name", 'for comm="snapgate-runner" name'), pid=9).denial is not None
    assert read_signs(DENIAL.replace("for name", "for pid=9 name"), pid=9).denial is not None
    assert read_signs(DENIAL.replace("for name", 'for pid=99 comm="other" name'), pid=9).denial is None


def test_an_empty_log_says_nothing() -> None:
    signs = read_signs("", pid=None)
    assert (signs.tombstone, signs.dsp_crash, signs.denial) == (None, None, None)
