"""The float graph of one layer at a time: built where it is first asked for, gone when another layer's is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from harness.compiler.recipe import Plan
from harness.model.checkpoint import Checkpoint
from harness.model.embeddings import with_embeddings
from harness.model.form import Logits
from harness.model.part import PartDecoder

if TYPE_CHECKING:
    import onnx

    from harness.model.decoder import GraphRunner

Array = NDArray[Any]


class FloatLayers:
    """AR-N of the first of the plan's sizes, with logits of every token. ``folder``: for the weights of one layer.

    ``embeddings``: the table of graphs that take its rows.
    """

    def __init__(self, checkpoint: Checkpoint, plan: Plan, folder: Path, embeddings: Array | None) -> None:
        self.folder = folder
        self._checkpoint, self._plan, self._embeddings = checkpoint, plan, embeddings
        self._built: int | None = None

    def path(self, layer: int) -> Path:
        """The graph; its weights lie in ``folder``, as it does."""
        from harness.model.graph import build_graph
        from harness.model.storage import TensorStore, save_graph

        path = self.folder / "float.onnx"
        if self._built == layer:
            return path
        self._built = None
        with TensorStore(self.folder / "float.data") as store:
            model = build_graph(
                self._checkpoint,
                n_tokens=self._plan.prefill_tokens,
                context_length=self._plan.context_length,
                form=replace(self._plan.form, logits=Logits.ALL),
                store=store,
                layers=range(layer, layer + 1),
            )
        save_graph(path, model)
        self._built = layer
        return path

    def graph(self, layer: int) -> onnx.ModelProto:
        from harness.model.storage import load_graph

        return load_graph(self.path(layer))

    def through(
        self, layer: int, runner: GraphRunner, texts: Sequence[Array], mask_value: float
    ) -> Iterator[tuple[int, int, Array]]:
        """``PartDecoder.through`` of ``runner``, which runs the graph of ``layer``."""
        part = PartDecoder(
            [with_embeddings(runner, self._embeddings)],
            self._checkpoint.facts,
            range(layer, layer + 1),
            context_length=self._plan.context_length,
            mask_value=mask_value,
        )
        return part.through(texts)
