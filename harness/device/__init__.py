"""One phone, over adb."""

import os

_PORT = "ANDROID_ADB_SERVER_PORT"
if not (_said := os.environ.get(_PORT, "0")).isdecimal():
    # adbutils makes a client from this variable while it is imported, and ends with a traceback where it is no number.
    # Which server is used is an option's matter here, and the option names a port that is none.
    del os.environ[_PORT]
    try:
        import adbutils as _  # noqa: F401
    finally:
        os.environ[_PORT] = _said
