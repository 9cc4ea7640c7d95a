"""Android commands that no Linux host has, as scripts for the phone's ``/system/bin``.

``@PYTHON@`` becomes the command line of the phone's interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping

_GETPROP = """\
#!/system/bin/sh
case "$#" in
  0)
    while IFS='=' read -r key value; do
      printf '[%s]: [%s]\\n' "$key" "$value"
    done < /dev/vdev/props
    ;;
  *)
    while IFS='=' read -r key value; do
      if [ "$key" = "$1" ]; then
        printf '%s\\n' "$value"
        exit 0
      fi
    done < /dev/vdev/props
    printf '%s\\n' "$2"
    ;;
esac
"""

_SETPROP = """\
#!/system/bin/sh
if [ "$#" -ne 2 ]; then
  echo "usage: setprop NAME VALUE" >&2
  exit 1
fi
case "$1" in
  ro.*|*=*|'')
    echo "Failed to set property '$1' to '$2'." >&2
    echo "See dmesg for error reason." >&2
    exit 1
    ;;
esac
{
  while IFS='=' read -r key value; do
    [ "$key" = "$1" ] || printf '%s=%s\\n' "$key" "$value"
  done < /dev/vdev/props
  printf '%s=%s\\n' "$1" "$2"
} > /dev/vdev/.props.$$ && mv /dev/vdev/.props.$$ /dev/vdev/props
"""

_DUMPSYS = """\
#!/system/bin/sh
while :; do
  case "$1" in
    -t|-T) shift 2 ;;
    -l)
      echo "Currently running services:"
      for service in /dev/vdev/dumpsys/*; do echo "  ${service##*/}"; done
      exit 0
      ;;
    -*) echo "dumpsys: this phone does not know option $1" >&2; exit 1 ;;
    *) break ;;
  esac
done
if [ "$#" -eq 0 ]; then
  for service in /dev/vdev/dumpsys/*; do
    echo "DUMP OF SERVICE ${service##*/}:"
    cat "$service"
  done
  exit 0
fi
case "$1" in
  */*) echo "Can't find service: $1" >&2; exit 0 ;;
esac
if [ "$#" -gt 1 ]; then
  echo "dumpsys $1: this phone takes no arguments, found $2" >&2
  exit 1
fi
if [ -f "/dev/vdev/dumpsys/$1" ]; then
  cat "/dev/vdev/dumpsys/$1"
else
  echo "Can't find service: $1" >&2
fi
"""

_CHMOD = """\
#!/system/bin/sh
if [ -e /dev/vdev/noexec ]; then
  shift
  set -- 644 "$@"
fi
[ -x /system/bin/toybox ] && exec /system/bin/toybox chmod "$@"
exec /usr/bin/chmod "$@"
"""

_DATE = """\
#!/system/bin/sh
real() {
  if [ -x /system/bin/toybox ]; then /system/bin/toybox date "$@"; else /usr/bin/date "$@"; fi
}
if [ -e /dev/vdev/clock_offset ]; then
  read -r off < /dev/vdev/clock_offset
  real -d "@$(( $(real +%s) + off ))" "$@"
else
  real "$@"
fi
"""

_CMD = """\
#!/system/bin/sh
case "$1 $2 $3" in
  "connectivity airplane-mode enable") exec settings put global airplane_mode_on 1 ;;
  "connectivity airplane-mode disable") exec settings put global airplane_mode_on 0 ;;
  "power set-fixed-performance-mode-enabled true"|"power set-fixed-performance-mode-enabled false")
    echo "$3" > /dev/vdev/fixed_performance; exit 0 ;;
esac
echo "cmd: Can't find service: $1" >&2
exit 20
"""

_SETTINGS = """\
#!/system/bin/sh
touch /dev/vdev/settings
now=null
while IFS='=' read -r key value; do
  [ "$key" = "$2.$3" ] && now=$value
done < /dev/vdev/settings
case "$1" in
  get) echo "$now"; exit 0 ;;
  put) [ "$#" -eq 4 ] || { echo "settings: put NAMESPACE KEY VALUE" >&2; exit 255; } ;;
  delete) ;;
  *) echo "settings: this phone does not know $1" >&2; exit 255 ;;
esac
{
  while IFS='=' read -r key value; do
    [ "$key" = "$2.$3" ] || printf '%s=%s\\n' "$key" "$value"
  done < /dev/vdev/settings
  [ "$1" = put ] && printf '%s=%s\\n' "$2.$3" "$4"
} > /dev/vdev/.settings.$$
mv /dev/vdev/.settings.$$ /dev/vdev/settings
case "$2.$3" in
  system.peak_refresh_rate)
    rate=120.00001
    [ "$1" = put ] && rate=$4
    echo "  DisplayInfo{\\"Built-in Screen\\", state ON, renderFrameRate $rate}" > /dev/vdev/dumpsys/display ;;
esac
exit 0
"""

_INPUT = """\
#!/system/bin/sh
case "$1 $2" in
  "keyevent 223") echo "  mWakefulness=Asleep" > /dev/vdev/dumpsys/power ;;
  "keyevent 224") echo "  mWakefulness=Awake" > /dev/vdev/dumpsys/power ;;
  *) echo "input: this phone takes keyevent 223 and 224 only" >&2; exit 255 ;;
esac
"""

_REBOOT = """\
#!/system/bin/sh
if [ "$#" -gt 0 ]; then
  echo "reboot: this phone has no mode $1" >&2
  exit 1
fi
kill -USR1 1 && sleep 60
"""

_LOGCAT = """\
#!/system/bin/sh
@PYTHON@ -m adbd.logcat logcat "$@"
"""

_LOG = """\
#!/system/bin/sh
@PYTHON@ -m adbd.logcat log "$@"
"""

_KILL = """\
#!/system/bin/sh
kill "$@"
"""

_PS = """\
#!/system/bin/sh
columns=pid,comm
while [ "$#" -gt 0 ]; do
  case "$1" in
    -A|-e) ;;
    -f|-ef|-Af) columns=user,pid,ppid,args ;;
    -o) columns=$2; shift ;;
    *) echo "ps: this phone does not know option $1" >&2; exit 1 ;;
  esac
  shift
done
IFS=,
set -- $columns
unset IFS
titles=
for column; do
  case "$column" in
    user|pid|ppid|stat|comm|args) titles="$titles $column" ;;
    user=|pid=|ppid=|stat=|comm=|args=) ;;
    *) echo "ps: this phone does not know column $column" >&2; exit 1 ;;
  esac
done
[ -z "$titles" ] || echo "${titles# }" | tr a-z A-Z
for folder in /proc/[0-9]*; do
  { read -r state < "$folder/stat"; } 2> /dev/null || continue
  comm=${state#*(}
  comm=${comm%)*}
  state=${state##*) }
  ppid=${state#* }
  args=$(tr '\\0' ' ' < "$folder/cmdline") 2> /dev/null
  line=
  for column; do
    case "${column%=}" in
      user) line="$line shell" ;;
      pid) line="$line ${folder#/proc/}" ;;
      ppid) line="$line ${ppid%% *}" ;;
      stat) line="$line ${state%% *}" ;;
      comm) line="$line $comm" ;;
      args) line="$line ${args:-[$comm]}" ;;
    esac
  done
  printf '%s\\n' "${line# }"
done
"""

FALLBACKS: Mapping[str, str] = {"kill": _KILL, "ps": _PS}
"""For what a harness wants of every phone and a small host (no procps) has not."""

SHIMS: Mapping[str, str] = {
    "chmod": _CHMOD,
    "cmd": _CMD,
    "date": _DATE,
    "dumpsys": _DUMPSYS,
    "getprop": _GETPROP,
    "input": _INPUT,
    "log": _LOG,
    "logcat": _LOGCAT,
    "reboot": _REBOOT,
    "setprop": _SETPROP,
    "settings": _SETTINGS,
}
