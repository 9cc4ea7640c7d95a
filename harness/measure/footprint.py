"""What an artifact keeps in memory while it runs, and the share of an HTP session and of a phone's RAM that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.record.artifact import ArtifactManifest, ContextFile
from harness.soc import HTP_CONTEXT_BYTES, HTP_SESSION_BYTES

PHONE_RAM_GB: Final = (8, 12, 16)
"""What phones with these SoCs are sold with, in 2^30 bytes."""
_PAST_IN: Final = ("past_key_", "past_value_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes. A floor: scratch memory that the HTP takes for activations is known on a phone only."""

    binaries: int
    kv_pool: int
    """One cache, shared by all graphs: its widest layout."""
    io: int
    """Every other input and output of every graph."""
    largest_context: int
    """The binary of one context, and the cache of its layers."""

    @property
    def total(self) -> int:
        return self.binaries + self.kv_pool + self.io

    @property
    def of_session(self) -> float:
        """Share of what one HTP session maps."""
        return self.total / HTP_SESSION_BYTES

    @property
    def of_context(self) -> float:
        """Share of what one context may have, of the context that has most."""
        return self.largest_context / HTP_CONTEXT_BYTES

    def of_ram(self, gigabytes: int) -> float:
        return self.total / (gigabytes << 30)


def footprint(manifest: ArtifactManifest) -> Footprint:
    """Of all contexts loaded at once, as the runner loads them."""
    by_layer: dict[str, int] = {}
    io = 0
    for graph in (graph for context in manifest.contexts for graph in context.graphs):
        for tensor in graph.inputs:
            if _is_past(tensor.name):
                by_layer[tensor.name] = max(by_layer.get(tensor.name, 0), tensor.n_bytes)
            else:
                io += tensor.n_bytes
        io += sum(tensor.n_bytes for tensor in graph.outputs)
    return Footprint(
        binaries=sum(context.n_bytes for context in manifest.contexts),
        kv_pool=sum(by_layer.values()),
        io=io,
        largest_context=max((context.n_bytes + _kv_bytes(context) for context in manifest.contexts), default=0),
    )


def _kv_bytes(context: ContextFile) -> int:
    return max((sum(t.n_bytes for t in graph.inputs if _is_past(t.name)) for graph in context.graphs), default=0)


def _is_past(name: str) -> bool:
    return name.startswith(_PAST_IN)
