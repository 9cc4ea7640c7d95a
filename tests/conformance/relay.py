"""Inside a network namespace of its own: the genuine adbd, and the way to it from one port of the host's loopback.

adbd listens on every interface and trusts everybody, so it must not be on a network that anybody else is on.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

_ADBD = ("127.0.0.1", 5555)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError):
            there = await asyncio.open_connection(*_ADBD)
            await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
            return
        await asyncio.sleep(0.1)
    writer.close()


async def main(listen_fd: int, command: list[str]) -> None:
    daemon = await asyncio.create_subprocess_exec(*command)
    server = await asyncio.start_server(_serve, sock=socket.socket(fileno=listen_fd))
    async with server:
        await daemon.wait()


asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
