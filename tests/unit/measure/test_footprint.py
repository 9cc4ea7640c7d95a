from __future__ import annotations

from dataclasses import dataclass

from harness.measure.footprint import footprint
from harness.record.artifact import ContextFile, GraphSpec, TensorSpec
from harness.record.vocabulary import DType


@dataclass(frozen=True)
class Manifest:
    contexts: tuple[ContextFile, ...]


def tensor(name: str, n_bytes: int) -> TensorSpec:
    return TensorSpec(name=name, dtype=DType.UFIXED8, shape=(n_bytes,), scale=1.0, zero_point=128)


def context(file: str, n_bytes: int, *graphs: GraphSpec) -> ContextFile:
    return ContextFile(file=file, sha256="", n_bytes=n_bytes, graphs=graphs)


def graph(n_tokens: int, past: int, layer: int = 0) -> GraphSpec:
    return GraphSpec(
        name="",
        n_tokens=n_tokens,
        inputs=(tensor("mask", 10), tensor(f"past_key_{layer}_in", past), tensor(f"past_value_{layer}_in", past)),
        outputs=(tensor("logits", 5), tensor(f"past_key_{layer}_out", 3)),
        epcontext_nodes=1,
        cpu_nodes=0,
    )


def test_graphs_share_one_cache_at_its_widest() -> None:
    need = footprint(Manifest((context("ar8.bin", 1000, graph(8, 92)), context("ar1.bin", 900, graph(1, 99)))))  # type: ignore[arg-type]
    assert (need.binaries, need.kv_pool, need.io) == (1900, 2 * 99, 2 * (10 + 5 + 3))
    assert need.largest_context == 1000 + 2 * 92
    assert need.total == 1900 + 198 + 36


def test_shards_each_have_the_cache_of_their_layers() -> None:
    need = footprint(Manifest((context("1.bin", 1 << 30, graph(1, 50, 0)), context("2.bin", 1 << 30, graph(1, 50, 1)))))  # type: ignore[arg-type]
    assert need.kv_pool == 200
    assert need.largest_context == (1 << 30) + 100
    assert round(need.of_session, 4) == round(2 / 3.5, 4)
    assert round(need.of_context, 4) == 0.5
    assert round(need.of_ram(8), 4) == 0.25


def test_without_contexts_or_graphs_there_is_nothing_to_keep() -> None:
    assert footprint(Manifest(())).total == 0  # type: ignore[arg-type]
    empty = footprint(Manifest((context("1.bin", 7),)))  # type: ignore[arg-type]
    assert (empty.total, empty.largest_context) == (7, 7)
