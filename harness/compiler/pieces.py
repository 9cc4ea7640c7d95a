"""Graphs cut around what the HTP refuses (``--refused cpu``): HTP | CPU | HTP, run one after the other like shards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.compiler.operators import NodeReport, inspect_operators, name_every_node
from harness.compiler.stages import Stage, Stages
from harness.record.codec import read_json, write_json
from harness.soc import Soc

_LIST = "pieces.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceFile:
    file: str
    refused: tuple[str, ...]
    """``operator (node): reason`` of what the HTP refuses in it; with any, it runs on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    by_size: dict[str, tuple[PieceFile, ...]]
    """Tokens a step to the pieces of its graph, in the order in which they run."""


def cut_refused(
    graphs: Stage,
    paths: Mapping[int, Sequence[Path]],
    soc: Soc,
    stages: Stages,
    progress: Callable[[str], None],
) -> tuple[Stage, Pieces]:
    """``paths``: the graphs to compile by tokens a step, each of them whole. Uncut ones are pieces of their own."""
    from harness.model.cut import cut_graph
    from harness.model.storage import load_graph, save_graph

    def make(folder: Path) -> None:
        for data in graphs.path.glob("*.data"):
            _share(data, folder / data.name)
        found = {}
        for n_tokens, (path,) in paths.items():
            refused = {node.name: node for node in inspect_operators(path, soc, progress=progress).refused}
            model = load_graph(path)
            name_every_node(model)
            files = []
            pieces = cut_graph(model, refused.keys())
            for index, piece in enumerate(pieces, start=1):
                name = path.name if len(pieces) == 1 else f"{path.stem}_piece{index}.onnx"
                save_graph(folder / name, piece.model)
                files.append(PieceFile(file=name, refused=tuple(_told(refused[node]) for node in piece.refused)))
            found[str(n_tokens)] = tuple(files)
            progress(f"AR-{n_tokens}: {' | '.join('CPU' if each.refused else 'HTP' for each in files)}")
        write_json(folder / _LIST, Pieces(by_size=found))

    decided_by = {"graphs": graphs.key, "graph": {str(n): path.name for n, (path,) in paths.items()}}
    stage = stages.folder("pieces", {**decided_by, "soc": soc.soc_number}, make)
    return stage, read_json(stage.path / _LIST, Pieces)


def _told(node: NodeReport) -> str:
    return f"{node.op} ({node.name}): {node.reason}"


def _share(source: Path, target: Path) -> None:
    """One file under a second name: onnxruntime takes it, and only finished artifacts are read by onnx."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
