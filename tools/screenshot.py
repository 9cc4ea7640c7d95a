"""Make a PNG of an HTML file with headless Chromium: ``python tools/screenshot.py out/report.html docs/report.png``.

Chromium is driven over its DevTools pipe (file descriptors 3 and 4, JSON messages ended by a zero byte), so nothing but
Debian's ``chromium`` is needed. The tests of the report in a browser use ``Browser`` too.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The path of a Chromium on this host, or None."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class Browser:
    """One headless Chromium with one page. ``events`` keeps every event the page sent."""

    def __init__(self, executable: str, *, timeout_s: float = 60.0) -> None:
        self.events: list[dict[str, Any]] = []
        self._timeout_s = timeout_s
        self._next_id = 0
        self._session: str | None = None
        self._buffer = b""
        self._profile = tempfile.TemporaryDirectory(prefix="snapgate-chromium-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={self._profile.name}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        self._process = _start(executable, flags, to_read, to_write)
        os.close(to_read)
        os.close(to_write)
        target = self._send("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def open(self, path: Path, *, width: int = 1360, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Load a file and wait until it has loaded. ``media``: ``print`` or empty for the screen."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        self.events.clear()
        self._send("Page.navigate", {"url": path.resolve().as_uri()})
        self.wait_for("Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, as JSON."""
        answer = self._send("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in answer:
            raise RuntimeError(f"the page raised: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """One key, as the DevTools protocol names it: ``Tab``, ``Enter``."""
        text = {"Enter": "\r"}.get(key, "")
        code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}[key]
        base = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self._send("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **base})
        self._send("Input.dispatchKeyEvent", {"type": "keyUp", **base})

    def screenshot(self, *, whole_page: bool = False) -> bytes:
        arguments: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole_page}
        if whole_page:
            size = self._send("Page.getLayoutMetrics")["cssContentSize"]
            arguments["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        return base64.b64decode(self._send("Page.captureScreenshot", arguments)["data"])

    def pdf(self) -> bytes:
        answer = self._send("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
        return base64.b64decode(answer["data"])

    def javascript(self, *, enabled: bool) -> None:
        self._send("Emulation.setScriptExecutionDisabled", {"value": not enabled})

    def wait_for(self, method: str) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not any(event["method"] == method for event in self.events):
            self._receive(deadline)

    def _send(self, method: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": arguments or {}}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self._timeout_s
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            block = os.read(self._read, 1 << 20) if ready else b""
            if not block:
                raise RuntimeError("Chromium did not answer in time" if not ready else "Chromium ended")
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


def _start(executable: str, flags: list[str], to_read: int, to_write: int) -> subprocess.Popen[bytes]:
    """Chromium wants the pipe at descriptors 3 and 4; a shell-free launcher moves them there."""
    launcher = (
        "import os,sys\n"
        "r,w=int(sys.argv[1]),int(sys.argv[2])\n"
        "r,w=os.dup(r),os.dup(w)\n"
        "import fcntl\n"
        "r=fcntl.fcntl(r,fcntl.F_DUPFD,10);w=fcntl.fcntl(w,fcntl.F_DUPFD,10)\n"
        "os.dup2(r,3);os.dup2(w,4)\n"
        "os.execv(sys.argv[3],sys.argv[3:])\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", launcher, str(to_read), str(to_write), executable, *flags],
        pass_fds=(to_read, to_write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a PNG of an HTML file with headless Chromium.")
    parser.add_argument("html", type=Path)
    parser.add_argument("png", type=Path)
    parser.add_argument("--width", type=int, default=1360, help="of the window in pixels (default 1360)")
    parser.add_argument("--height", type=int, default=1000, help="of the window in pixels (default 1000)")
    parser.add_argument("--dark", action="store_true", help="as a host with a dark theme shows it")
    parser.add_argument("--whole", action="store_true", help="the whole page, not only what fits in the window")
    parser.add_argument("--print", action="store_true", dest="for_print", help="with the print style sheet")
    parser.add_argument("--at", default="", help="id of the element to scroll to")
    arguments = parser.parse_args()
    executable = find_chromium()
    if executable is None:
        print("no Chromium on this host; install it: apt-get install chromium", file=sys.stderr)
        return 21
    if not arguments.html.is_file():
        print(f"{arguments.html} does not exist; make it first: make demo", file=sys.stderr)
        return 20
    with Browser(executable) as browser:
        browser.open(
            arguments.html,
            width=arguments.width,
            height=arguments.height,
            dark=arguments.dark,
            media="print" if arguments.for_print else "",
        )
        if arguments.at:
            browser.evaluate(f"document.getElementById({json.dumps(arguments.at)}).scrollIntoView()")
        picture = browser.screenshot(whole_page=arguments.whole)
    temporary = arguments.png.with_name(f".{arguments.png.name}.tmp")
    temporary.write_bytes(picture)
    temporary.replace(arguments.png)
    print(arguments.png)
    return 0


if __name__ == "__main__":
    sys.exit(main())
