"""Builds a phone's root folder from its profile: properties, sensor files, programs and data.

::

    <phone folder>/
        system/   bin (shell, tools, getprop and its like), etc, lib64     read-only in the phone
        vendor/   lib64                                                    read-only
        data/     local/tmp and the rest of /data                          kept over a reboot
        storage/  emulated/0, what /sdcard leads to
        vdev/     props, log, board.json, boot_id, dumpsys/, sys/          /dev/vdev; its sys/ is the phone's /sys,
                  meminfo                                                  its meminfo /proc/meminfo
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from .android_tools import AndroidTools
from .profile import Profile, Zone
from .sandbox import Interpreter
from .shims import FALLBACKS, SHIMS

RUNNER_NAME = "snapgate-runner"
"""A process of this name is what heats the phone."""

_HOST_BIN = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
_COMMANDS = frozenset(
    """
    [ awk base64 basename cal cat chgrp chmod chown cksum clear cmp comm cp cpio cut date dd df diff dirname du echo
    egrep env expand expr fallocate false fgrep file find flock fmt free getconf grep groups gunzip gzip head
    hostname iconv id install ionice iorenice kill killall ln logname ls lsof md5sum mkdir mkfifo mktemp more mount
    mountpoint mv nc nice nl nohup nproc od paste patch pgrep pidof pkill pmap printenv printf prlimit ps pwd
    readlink realpath renice rm rmdir sed seq setsid sha1sum sha224sum sha256sum sha384sum sha512sum sleep sort
    split stat strings stty sync tac tail tar taskset tee test time timeout top touch tr true truncate tty uname
    uniq unlink uptime usleep vmstat wc which whoami xargs xxd yes zcat
    """.split()  # noqa: SIM905
)
"""What Android 14's toybox (and one-true-awk) provide, as far as a harness may want it."""
_HOST_PREFERRED = frozenset({"md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum"})
"""Android builds these with a fast crypto library, Debian's toybox without: same output, five times slower."""
_ETC = {
    "passwd": "root:x:0:0::/:/system/bin/sh\nshell:x:2000:2000::/:/system/bin/sh\nnobody:x:9999:9999::/:/bin/false\n",
    "group": "root:x:0:\nshell:x:2000:\nnobody:x:9999:\n",
    "hosts": "127.0.0.1 localhost\n::1 ip6-localhost\n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneIdentity:
    """``network`` is ``none`` or, where the host refuses a network namespace, ``host``; ``isolation``: isolation.py."""

    serial: str
    network: str
    isolation: str


def build_root(
    folder: Path, profile: Profile, identity: PhoneIdentity, tools: AndroidTools, interpreter: Interpreter
) -> None:
    """Make the whole tree in ``folder``, which must not exist yet."""
    folder.mkdir(parents=True, mode=0o755)
    for name in ("system/bin", "system/etc", "system/lib64", "vendor/lib64", "vendor/bin", "storage/emulated/0"):
        (folder / name).mkdir(parents=True)
    for name in ("data/local/tmp", "data/misc", "data/tombstones", "data/vendor"):
        (folder / name).mkdir(parents=True)
    for name in ("vdev/dumpsys", "vdev/sys"):
        (folder / name).mkdir(parents=True)
    (folder / "data/local/tmp").chmod(0o771)
    for name, text in _ETC.items():
        (folder / "system/etc" / name).write_text(text, encoding="ascii")
    loader_cache = Path("/etc/ld.so.cache")
    if loader_cache.exists():
        shutil.copyfile(loader_cache, folder / "system/etc/ld.so.cache")
    shell, toolset = _install_programs(folder / "system/bin", tools, interpreter)
    vdev = folder / "vdev"
    (vdev / "static_props").write_text(
        "".join(f"{key}={value}\n" for key, value in _properties(profile, identity, shell, toolset).items()),
        encoding="utf-8",
    )
    (vdev / "board.json").write_text(json.dumps(_board(profile), indent=1), encoding="utf-8")
    (vdev / "dumpsys/power").write_text("  mWakefulness=Asleep\n", encoding="ascii")
    (vdev / "dumpsys/display").write_text(
        '  DisplayInfo{"Built-in Screen", state ON, renderFrameRate 120.00001}\n', encoding="ascii"
    )
    (vdev / "meminfo").touch()
    _build_sys(vdev / "sys", profile)


def prepare_boot(folder: Path) -> str:
    """What every boot starts afresh: boot id, log, properties set since. Returns the boot id."""
    vdev = folder / "vdev"
    boot_id = str(uuid.uuid4())
    (vdev / "boot_id").write_text(boot_id + "\n", encoding="ascii")
    (vdev / "log").write_text("", encoding="ascii")
    for fault in ("noexec", "clock_offset"):
        (vdev / fault).unlink(missing_ok=True)
    (vdev / "fixed_performance").write_text("false\n", encoding="ascii")
    static = (vdev / "static_props").read_text(encoding="utf-8").splitlines()
    kept = dict(line.split("=", 1) for line in static)
    props = vdev / "props"
    if props.exists():
        for line in props.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            if key.startswith("persist."):
                kept[key] = value
    props.write_text("".join(f"{key}={kept[key]}\n" for key in sorted(kept)), encoding="utf-8")
    return boot_id


def empty_storage(folder: Path) -> None:
    """``/data/local/tmp`` as a memory file system is after a reboot."""
    temporary = folder / "data/local/tmp"
    for path, _, _ in os.walk(temporary):
        Path(path).chmod(0o700)
    shutil.rmtree(temporary)
    temporary.mkdir()
    temporary.chmod(0o771)


def _properties(profile: Profile, identity: PhoneIdentity, shell: str, toolset: str) -> dict[str, str]:
    device = f"vdev_{profile.soc.marker}"
    build = f"VDEV.{profile.security_patch.replace('-', '')[2:]}.001"
    release = profile.android_release
    return {
        "dalvik.vm.isa.x86_64.variant": "x86_64",
        "init.svc.adbd": "running",
        "persist.sys.timezone": "UTC",
        "ro.adb.secure": "0",
        "ro.board.platform": profile.platform,
        "ro.boot.flash.locked": "1",
        "ro.boot.hardware": "vdev",
        "ro.boot.serialno": identity.serial,
        "ro.boot.vbmeta.device_state": "locked",
        "ro.boot.verifiedbootstate": "green",
        "ro.bootmode": "unknown",
        "ro.build.characteristics": "default",
        "ro.build.date.utc": "1735689600",
        "ro.build.display.id": build,
        "ro.build.fingerprint": f"SnapGate/{device}/{device}:{release}/{build}/1:user/release-keys",
        "ro.build.id": build,
        "ro.build.product": device,
        "ro.build.tags": "release-keys",
        "ro.build.type": "user",
        "ro.build.version.incremental": "1",
        "ro.build.version.release": release,
        "ro.build.version.sdk": str(profile.android_sdk),
        "ro.build.version.security_patch": profile.security_patch,
        "ro.debuggable": "0",
        "ro.hardware": "vdev",
        "ro.product.board": profile.platform,
        "ro.product.brand": "SnapGate",
        "ro.product.cpu.abi": "x86_64",
        "ro.product.cpu.abilist": "x86_64",
        "ro.product.cpu.abilist64": "x86_64",
        "ro.product.device": device,
        "ro.product.manufacturer": "SnapGate Virtual",
        "ro.product.model": f"{profile.soc.part} virtual",
        "ro.product.name": device,
        "ro.secure": "1",
        "ro.serialno": identity.serial,
        "ro.snapgate.isolation": identity.isolation,
        "ro.snapgate.network": identity.network,
        "ro.snapgate.shell": shell,
        "ro.snapgate.tools": toolset,
        "ro.snapgate.virtual": "1",
        "ro.soc.manufacturer": "QTI",
        "ro.soc.model": profile.soc.part,
    }


def _install_programs(folder: Path, tools: AndroidTools, interpreter: Interpreter) -> tuple[str, str]:
    """Fill ``/system/bin``; returns the names of the shell and the tools it got."""
    for name, text in SHIMS.items():
        path = folder / name
        path.write_text(text.replace("@PYTHON@", interpreter.command_line()), encoding="ascii")
        path.chmod(0o755)
    if tools.mksh is not None:
        shutil.copy(tools.mksh, folder / "sh")
        shell = "mksh"
    else:
        host_shell = Path("/bin/sh").resolve()
        _link_or_copy(host_shell, folder / "sh")
        shell = host_shell.name
    offered: frozenset[str] = frozenset()
    if tools.toybox is not None:
        shutil.copy(tools.toybox, folder / "toybox")
        offered = toybox_commands(tools.toybox)
    for name in sorted(_COMMANDS):
        path = folder / name
        if path.exists():
            continue
        if name in offered and name not in _HOST_PREFERRED:
            path.symlink_to("toybox")
        elif (host := _host_program(name)) is not None:
            _link_or_copy(host, path)
        elif name in FALLBACKS:
            path.write_text(FALLBACKS[name], encoding="ascii")
            path.chmod(0o755)
    return shell, "toybox" if offered else "host"


def toybox_commands(toybox: Path) -> frozenset[str]:
    """What this toybox was built with, as it lists it; empty if it cannot be run here."""
    try:
        listed = subprocess.run([toybox], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(listed.split())


def _host_program(name: str) -> Path | None:
    for folder in _HOST_BIN:
        path = Path(folder) / name
        if path.exists():
            return path.resolve()
    return None


def _link_or_copy(program: Path, link: Path) -> None:
    """``/usr`` exists in the phone, other host folders do not."""
    if program.is_relative_to("/usr"):
        link.symlink_to(program)
    else:
        shutil.copy(program, link)


def _board(profile: Profile) -> dict[str, object]:
    """What the daemon needs to move the sensors; ``adbd/board.py`` reads it."""
    battery = profile.battery
    return {
        "load_processes": [RUNNER_NAME],
        "skin_thresholds": list(profile.skin_thresholds),
        "clusters": [
            {"cpus": list(cluster.cpus), "min_khz": cluster.min_khz, "max_khz": cluster.max_khz}
            for cluster in profile.clusters
        ],
        "zones": [_board_zone(zone) for zone in profile.zones],
        "memory": {
            "total_bytes": round(profile.memory.ram_gib * 2**30),
            "taken_bytes": round(profile.memory.taken_gib * 2**30),
        },
        "battery": {
            "full_uah": battery.full_mah * 1000,
            "idle_ua": battery.idle_ma * 1000,
            "load_ua": battery.load_ma * 1000,
            "charger_ua": battery.charger_ma * 1000,
        },
    }


def _board_zone(zone: Zone) -> dict[str, object]:
    if zone.fixed_millidegrees is not None:
        return {"type": zone.type, "fixed_millidegrees": zone.fixed_millidegrees}
    return {
        "type": zone.type,
        "idle": zone.idle_celsius,
        "rise": zone.rise_celsius,
        "tau_s": zone.tau_s,
        "hal_type": zone.hal_type,
        "hal_name": zone.hal_name,
    }


def _build_sys(folder: Path, profile: Profile) -> None:
    for index, zone in enumerate(profile.zones):
        now = zone.fixed_millidegrees
        millidegrees = round(zone.idle_celsius * 1000) if now is None else now
        _files(
            folder / f"class/thermal/thermal_zone{index}",
            {"type": zone.type, "temp": millidegrees, "mode": "enabled", "policy": "step_wise"},
        )
    for index, name in enumerate(("cpufreq-cpu0", "gpu", "cdsp")):
        _files(folder / f"class/thermal/cooling_device{index}", {"type": name, "cur_state": 0, "max_state": 10})
    cpus = folder / "devices/system/cpu"
    highest = max(cpu for cluster in profile.clusters for cpu in cluster.cpus)
    _files(cpus, {"online": f"0-{highest}", "possible": f"0-{highest}", "present": f"0-{highest}"})
    for cluster in profile.clusters:
        together = " ".join(map(str, cluster.cpus))
        for cpu in cluster.cpus:
            _files(
                cpus / f"cpu{cpu}/cpufreq",
                {
                    "affected_cpus": together,
                    "related_cpus": together,
                    "cpuinfo_min_freq": cluster.min_khz,
                    "cpuinfo_max_freq": cluster.max_khz,
                    "scaling_min_freq": cluster.min_khz,
                    "scaling_max_freq": cluster.max_khz,
                    "scaling_cur_freq": cluster.min_khz,
                    "scaling_governor": "walt",
                    "scaling_available_governors": "walt performance powersave",
                },
            )
    battery = profile.battery
    charge = round(battery.full_mah * 1000 * battery.percent / 100)
    _files(
        folder / "class/power_supply/battery",
        {
            "capacity": round(battery.percent),
            "charge_counter": charge,
            "charge_full": battery.full_mah * 1000,
            "charge_full_design": battery.full_mah * 1000,
            "current_now": 0,
            "cycle_count": 12,
            "health": "Good",
            "present": 1,
            "status": "Charging" if battery.charging else "Discharging",
            "technology": "Li-ion",
            "temp": 290,
            "type": "Battery",
            "voltage_now": 4_200_000,
        },
    )
    _files(
        folder / "class/power_supply/usb",
        {"online": int(battery.charging), "present": int(battery.charging), "type": "USB"},
    )


def _files(folder: Path, contents: dict[str, str | int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in contents.items():
        (folder / name).write_text(f"{value}\n", encoding="ascii")
