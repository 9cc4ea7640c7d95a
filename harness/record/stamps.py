"""``stamps.bin``: what the runner had stamped of the generation under way when it was killed.

The runner writes each stamp into a shared mapping of this file, which outlives the process. Layout (little-endian,
``device_runtime/src/stamp_file.h``): a header of 64 bytes, then stamps of 24 bytes. The bytes come from a phone and may
be anything; what they cannot be is left out, and nothing is raised.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from harness.record.job import Prompt
from harness.record.runner import Generation, PrefillChunk, Unfinished

STAMPS_FILE: Final = "stamps.bin"
_HEADER: Final = struct.Struct("<8sIIQQIII20x")
_STAMP: Final = struct.Struct("<IiiIq")
_MAGIC: Final = b"SNAPSTMP"
_START, _CHUNK, _CHUNK_END, _RELAYOUT, _TOKEN = range(1, 6)


def read_unfinished(data: bytes, prompts: Sequence[Prompt], recorded: Sequence[Generation]) -> Unfinished | None:
    """The generation that ``data`` holds. None: none was under way, it is ``recorded``, or these are no stamps."""
    if len(data) < _HEADER.size:
        return None
    magic, version, stamp_bytes, capacity, n_stamps, prompt_index, repetition, warmup = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != 1 or stamp_bytes != _STAMP.size or prompt_index >= len(prompts):
        return None
    n_there = min(n_stamps, capacity, (len(data) - _HEADER.size) // _STAMP.size)
    end = _HEADER.size + n_there * _STAMP.size
    start_ns, relayout_ns = None, 0
    chunk: tuple[int, int, int] | None = None
    prefill: list[PrefillChunk] = []
    tokens: list[tuple[int, int, int]] = []
    for kind, a, b, _, moment in _STAMP.iter_unpack(data[_HEADER.size : end]):
        if kind == _START:
            start_ns = moment
        elif kind == _CHUNK:
            chunk = (a, b, moment)
        elif kind == _CHUNK_END and chunk is not None:
            prefill.append(PrefillChunk(n_tokens=chunk[0], n_graph_tokens=chunk[1], start_ns=chunk[2], end_ns=moment))
            chunk = None
        elif kind == _RELAYOUT:
            relayout_ns = moment
        elif kind == _TOKEN:
            tokens.append((moment, a, b))
    prompt_id = prompts[prompt_index].prompt_id
    known = {(generation.prompt_id, generation.repetition, generation.warmup) for generation in recorded}
    if start_ns is None or (prompt_id, repetition, bool(warmup)) in known:
        return None
    return Unfinished(
        prompt_id=prompt_id,
        repetition=repetition,
        warmup=bool(warmup),
        start_ns=start_ns,
        prefill=tuple(prefill),
        relayout_ns=relayout_ns,
        token_ns=tuple(moment for moment, _, _ in tokens),
        token_ids=tuple(token for _, token, _ in tokens),
        argmax_ids=tuple(greedy for _, _, greedy in tokens),
    )
