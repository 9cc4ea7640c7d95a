"""The virtual phone: a device that the real adb lists, built from namespaces of this host and a SoC's profile.

It says in its properties that it is virtual (``ro.snapgate.virtual``, ``ro.hardware``, ``ro.product.manufacturer``),
and runs programs of the host's own ABI (``ro.product.cpu.abi`` is ``x86_64``). Its temperatures, clocks and battery
come from a small model: nothing read from them is a measurement.
"""

from .android_tools import AndroidTools, fetch_android_tools, find_android_tools
from .daemon import LabStatus, PhoneStatus, default_state_dir, start_daemon, status, stop_daemon
from .isolation import Isolation, probe_sandbox
from .lab import PhoneSpec, VirtualLab, VirtualPhone
from .profile import profile_markers

__all__ = [
    "AndroidTools",
    "Isolation",
    "LabStatus",
    "PhoneSpec",
    "PhoneStatus",
    "VirtualLab",
    "VirtualPhone",
    "default_state_dir",
    "fetch_android_tools",
    "find_android_tools",
    "probe_sandbox",
    "profile_markers",
    "start_daemon",
    "status",
    "stop_daemon",
]
