"""Embeddings that the host looks up: the table of an artifact, and graphs that take its rows as if they took ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import ArtifactError
from harness.model.decoder import GraphRunner
from harness.model.encoding import encode
from harness.model.form import Embeddings
from harness.model.interface import INPUT_EMBEDS, INPUT_IDS
from harness.record.artifact import Artifact, GraphSpec, TensorSpec
from harness.record.vocabulary import DType

EMBEDDINGS_FILE: Final = "embeddings.bin"
"""float32, little-endian, (vocabulary, hidden)."""

Array = NDArray[Any]


def table_of(artifact: Artifact) -> Array | None:
    """(vocabulary, hidden) float32, mapped; None where the graphs have a table of their own."""
    if artifact.manifest.recipe.embeddings == Embeddings.GRAPH:
        return None
    path, facts = artifact.path(EMBEDDINGS_FILE), artifact.manifest.model
    shape = (facts.vocab_size, facts.hidden_size)
    n_bytes = 4 * shape[0] * shape[1]
    if not path.is_file() or path.stat().st_size != n_bytes:
        raise ArtifactError(
            f"{path} is not the embedding table",
            found=f"{path.stat().st_size} bytes" if path.is_file() else "no such file",
            expected=f"{n_bytes} bytes",
            next_step="prepare the artifact again",
        )
    return np.memmap(path, dtype="<f4", mode="r", shape=shape)


def with_embeddings(runner: GraphRunner, table: Array | None) -> GraphRunner:
    """``runner``, or, where it takes embeddings, one that looks ids up in ``table`` and runs it."""
    embeds = next((tensor for tensor in runner.spec.inputs if tensor.name == INPUT_EMBEDS), None)
    if embeds is None:
        return runner
    if table is None:
        raise ArtifactError(f"{runner.spec.name} takes embeddings", found="no table", expected=EMBEDDINGS_FILE)
    return _Embedding(runner, embeds, table)


class _Embedding:
    def __init__(self, runner: GraphRunner, embeds: TensorSpec, table: Array) -> None:
        self._runner, self._embeds, self._table = runner, embeds, table
        ids = TensorSpec(name=INPUT_IDS, dtype=DType.INT32, shape=embeds.shape[:2])
        self._spec = replace(
            runner.spec, inputs=tuple(ids if tensor is embeds else tensor for tensor in runner.spec.inputs)
        )

    @property
    def spec(self) -> GraphSpec:
        return self._spec

    def run(self, feed: Mapping[str, Array]) -> Mapping[str, Array]:
        given = dict(feed)
        rows = np.asarray(self._table[given.pop(INPUT_IDS)], dtype=np.float32)
        return self._runner.run({**given, INPUT_EMBEDS: encode(rows, self._embeds)})
