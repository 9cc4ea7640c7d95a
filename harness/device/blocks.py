"""Which blocks of a file differ from another version of it.

Blocks are of fixed size at fixed places: bytes that were changed in place are found, bytes behind an insertion all
count as changed. The hashes only choose what to send; what was put together is proved by the sha256 of the whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

BLOCK: Final = 16 * 1024
_HASH_BYTES: Final = 8
_READ: Final = 256 * BLOCK
MOST_RUNS: Final = 1500
"""The phone starts one ``dd`` for each run of blocks, some milliseconds each."""


def block_hashes(path: Path) -> bytes:
    """The first 8 bytes of the sha256 of each block, joined; the last block may be short. On every core: while blocks
    are hashed nothing is sent."""
    with path.open("rb", buffering=0) as stream, ThreadPoolExecutor(os.cpu_count()) as pool:
        starts = range(0, os.fstat(stream.fileno()).st_size, _READ)
        return b"".join(pool.map(partial(_hashes_at, stream.fileno()), starts))


def _hashes_at(descriptor: int, start: int) -> bytes:
    """Of the blocks of one reading; a file that became shorter meanwhile has fewer."""
    buffer = memoryview(bytearray(_READ))
    n = 0
    while n < _READ and (more := os.preadv(descriptor, [buffer[n:]], start + n)):
        n += more
    digests = (hashlib.sha256(buffer[at : min(at + BLOCK, n)]).digest() for at in range(0, n, BLOCK))
    return b"".join(digest[:_HASH_BYTES] for digest in digests)


def changed_runs(new: bytes, old: bytes, *, most: int = MOST_RUNS) -> tuple[tuple[int, int], ...]:
    """``(first block, blocks)`` of what differs in ``new``; with more than ``most`` runs the closest are joined."""
    here, there = (np.frombuffer(h, dtype="<u8", count=len(h) // _HASH_BYTES) for h in (new, old))
    differs = np.ones(len(here), dtype=bool)
    shared = min(len(here), len(there))
    differs[:shared] = here[:shared] != there[:shared]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], differs, [False])).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    if len(starts) > most:
        gaps = starts[1:] - ends[:-1]
        kept = np.sort(np.argsort(gaps, kind="stable")[len(starts) - most :])
        starts, ends = np.concatenate((starts[:1], starts[1:][kept])), np.concatenate((ends[:-1][kept], ends[-1:]))
    return tuple((int(start), int(end - start)) for start, end in zip(starts, ends, strict=True))


def spans_of(runs: Sequence[tuple[int, int]], n_bytes: int) -> tuple[tuple[int, int], ...]:
    """Runs of blocks as ``(offset, bytes)`` of a file of ``n_bytes``."""
    return tuple((first * BLOCK, min((first + n) * BLOCK, n_bytes) - first * BLOCK) for first, n in runs)
