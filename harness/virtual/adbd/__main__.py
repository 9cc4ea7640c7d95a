"""``python -m adbd --listen-fd N --control-fd N``: the phone's process 1.

The listening socket is made outside, in the host's network namespace; the control socket carries JSON lines to and
from the supervisor. When the supervisor's end closes, the phone ends with it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import socket
import sys
from pathlib import Path
from typing import Any

from .phone import Phone

_LINE_LIMIT = 1024 * 1024


async def _serve(listen_fd: int, control_fd: int, root: Path) -> None:
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=control_fd), limit=_LINE_LIMIT)

    def report(message: dict[str, Any]) -> None:
        writer.write(json.dumps(message).encode() + b"\n")

    phone = Phone(root, report)
    living = loop.create_task(phone.run())
    server = await loop.create_server(phone.new_connection, sock=socket.socket(fileno=listen_fd), backlog=16)
    report({"event": "ready"})
    commands = loop.create_task(_obey(reader, phone, report))
    try:
        done, _ = await asyncio.wait((living, commands), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        server.close()


async def _obey(reader: asyncio.StreamReader, phone: Phone, report: Any) -> None:
    while line := await reader.readline():
        request = json.loads(line)
        try:
            phone.handle(request)
        except (ValueError, KeyError, TypeError) as exc:
            report({"id": request.get("id"), "error": f"{exc}"})
        else:
            report({"id": request.get("id"), "ok": True})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--root", type=Path, default=Path("/dev/vdev"))
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s adbd %(levelname)s %(message)s")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(options.listen_fd, options.control_fd, options.root))


if __name__ == "__main__":
    main()
