"""Preparation of a model too large to be kept whole: one layer's floats, then one shard's graphs, on disk at a time.

The float layers come first, one after the other: each runs over the calibration text and the held-out text. Then each
shard is quantised straight from the checkpoint, compiled and measured, and its graphs are removed. The artifact holds
no reference graphs.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.compiler.beside import Beside
from harness.compiler.binaries import Binaries
from harness.compiler.build import Builder, Built
from harness.compiler.exports import ENCODINGS_NAME
from harness.compiler.figures import graph_spec
from harness.compiler.float_layers import FloatLayers
from harness.compiler.layer_quality import LayerQuality
from harness.compiler.layer_ranges import CalibratedLayers
from harness.compiler.probe import N_TOKENS, Step, Watched, agreement
from harness.compiler.recipe import choose_kv
from harness.compiler.shard_binaries import ShardBinaries
from harness.compiler.stages import Stage, plain
from harness.errors import UserError
from harness.model.embeddings import with_embeddings
from harness.model.encoding import encode
from harness.model.encodings_file import EncodingsFile, write_encodings
from harness.model.form import Contexts, GraphForm
from harness.model.interface import INPUT_EMBEDS
from harness.model.part import PartDecoder
from harness.model.recipes import SCHEMES, mask_value
from harness.model.reference import CpuGraph
from harness.soc import KvPrecision, Precision

if TYPE_CHECKING:
    from harness.model.calibrate import CalibrationText, Range
    from harness.model.quantize import Encoding

_BUNDLED: Final = Path(__file__).resolve().parents[2] / "models" / "real-model" / "calibration.txt"
BUNDLED_WORK: Final = 1.5e13
"""Tokens times parameters of the bundled text: of 7 B one context of 2048."""
_RANGES: Final = "ranges.json"
_SAMPLE: Final = "sample.npy"
"""Of what a layer puts out, the first rows of the first text: what the check of the next shard begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    number: int
    layers: range
    kv: KvPrecision
    names: Mapping[int, str]
    """Tokens a step to the file of the graph that is compiled."""
    measured: str
    """The AR-N graph that quality is measured on: where there are logits, with those of every token."""
    files: Mapping[str, tuple[int, GraphForm]]
    """All graphs that are made: tokens a step, and the form."""
    decided_by: Mapping[str, Any]
    stage: Stage
    """Of its graphs, made or not."""


class _Graphs:
    """Of a shard, made once, by whichever thread asks first."""

    def __init__(self, make: Callable[[], object]) -> None:
        self.asked = False
        self._make = make
        self._made = False
        self._lock = threading.Lock()

    def make_once(self) -> None:
        self.asked = True
        with self._lock:
            if not self._made:
                self._make()
                self._made = True


@dataclass(frozen=True, kw_only=True)
class LayerBuilder(Builder):
    def run(self) -> Built:
        kv, reason = choose_kv(self.plan, ())
        self.progress(f"KV cache: {kv}: {reason}")
        without = ", and without held-out text quality is not measured" if self.corpus is None else ""
        self.progress(f"note: prepared layer by layer: no reference graphs are kept{without}")
        table = self._through_floats()
        planned = [self._planned(number, layers, kv, table) for number, layers in enumerate(self._spans, start=1)]
        made: list[Binaries] = []
        measured: list[Stage] = []
        defects: dict[str, None] = {}
        with Beside() as beside:
            graphs = [_Graphs(partial(self._shard_stage, shard, table, beside)) for shard in planned]
            for index, shard in enumerate(planned):
                compiler = self._compiler(shard, planned, beside, graphs[index : index + 2])
                made.append(compiler.binaries())
                defects |= dict.fromkeys(compiler.defects(made[-1]))
                if self._quality is not None:
                    before = measured[-1] if measured else None
                    measured.append(self._measured(self._quality, shard, graphs[index], before))
                self.stages.drop(_shard_stage(shard.number))
                if self.plan.contexts == Contexts.SHARED:
                    self.stages.drop(*compiler.names_apart)
        quality, accuracy = ((), None) if self._quality is None else self._quality.figures(measured, kv)
        return Built(
            fp32=None,
            graphs=None,
            encodings=self._encodings(table) if table else None,
            kv=kv,
            text=self._text,
            quality=quality,
            accuracy=accuracy,
            binaries=tuple(each for of_size in zip(*made, strict=True) for each in of_size),
            defects=tuple(defects),
        )

    @cached_property
    def _spans(self) -> tuple[range, ...]:
        """The layers of each shard."""
        ends = (*(cut + 1 for cut in self._cuts), self.checkpoint.facts.n_layers)
        return tuple(range(start, end) for start, end in zip((0, *ends), ends, strict=False))

    @cached_property
    def _text(self) -> CalibrationText | None:
        from harness.model.calibrate import text_from_file

        if self.plan.precision is Precision.FP16:
            return None
        if self.calibration is None:
            raise ValueError("a model that is prepared layer by layer cannot write its own text")
        text = text_from_file(
            self.calibration,
            self.checkpoint.tokenizer_path,
            self.checkpoint.facts,
            context_length=self.plan.context_length,
        )
        if self.calibration != _BUNDLED:
            return text
        n_tokens = max(int(BUNDLED_WORK / self.checkpoint.facts.n_parameters), self.plan.prefill_tokens)
        ends = [
            min(len(sequence), max(0, n_tokens - index * self.plan.context_length))
            for index, sequence in enumerate(text.sequences)
        ]
        return replace(text, sequences=tuple(s[:end] for s, end in zip(text.sequences, ends, strict=True) if end))

    # Floats, layer after layer

    @cached_property
    def _calibrated(self) -> CalibratedLayers | None:
        if self._text is None:
            return None
        return CalibratedLayers(
            facts=self.checkpoint.facts,
            plan=self.plan,
            text=self._text,
            base=self._base(),
            stages=self.stages,
            progress=self.progress,
        )

    @cached_property
    def _quality(self) -> LayerQuality | None:
        if self.corpus is None:
            return None
        return LayerQuality(
            facts=self.checkpoint.facts,
            plan=self.plan,
            corpus=self.corpus,
            base=self._base(),
            embeddings=self.embeddings,
            stages=self.stages,
            progress=self.progress,
        )

    def _through_floats(self) -> Mapping[str, Encoding]:
        """Encodings of all activations; none where nothing is quantised."""
        from harness.model.calibrate import Range
        from harness.model.quantize import encoding_table

        n_layers = self.checkpoint.facts.n_layers
        found: dict[str, Range] = {}
        with self.stages.scratch() as folder:
            floats = FloatLayers(self.checkpoint, self.plan, folder, self.embeddings)
            for layer in range(n_layers):
                if self._calibrated is not None:
                    found |= self._calibrated.calibrate(layer, floats)
                if self._quality is not None:
                    self._quality.run_floats(layer, floats)
        if self._calibrated is None:
            return {}
        if self.embeddings is not None:  # tokens that the text does not reach must fit as well
            found[INPUT_EMBEDS] = Range(low=float(self.embeddings.min()), high=float(self.embeddings.max()))
        return encoding_table(found, n_layers, SCHEMES[self.plan.precision])

    def _encodings(self, table: Mapping[str, Encoding]) -> Stage:
        """Of activations: a large model's weights have more scales than anyone reads."""
        from harness.model.overrides import activation_encodings

        def make(folder: Path) -> None:
            file = EncodingsFile(activations=activation_encodings(table, ()), parameters=())
            write_encodings(folder / ENCODINGS_NAME, file)

        decided_by = {"table": {name: [e.scale, e.zero_point, e.bits] for name, e in table.items()}}
        return self.stages.folder("encodings", decided_by, make)

    # Shards, one after the other

    def _planned(self, number: int, layers: range, kv: KvPrecision, table: Mapping[str, Encoding]) -> _Shard:
        names = {n: f"{self.graph_name(kv, n, number)}{self._variants(n)[-1][0]}.onnx" for n in self.plan.graph_sizes}
        files = {names[n]: (n, self._variants(n)[-1][1]) for n in names}
        n_tokens = self.plan.prefill_tokens
        measured = names[n_tokens]
        if self._quality is not None and number == self.n_shards:
            end, form = self._variants(n_tokens)[0]
            measured = f"{self.graph_name(kv, n_tokens, number)}{end}.onnx"
            files[measured] = (n_tokens, form)
        encodings = json.dumps([[name, e.scale, e.zero_point, e.bits] for name, e in table.items()])
        decided_by = self._base() | {
            "encodings": hashlib.sha256(encodings.encode()).hexdigest(),
            "precision": str(self.plan.precision),
            "kv": str(kv),
            "layers": [layers.start, layers.stop],
            "shard": [number, self.n_shards],
            "weights": self.plan.weights,
            "text": plain(self._text) if self.plan.weights == "gptq" else None,
            "files": sorted(files),
        }
        stage = self.stages.planned(_shard_stage(number), decided_by)
        return _Shard(
            number=number,
            layers=layers,
            kv=kv,
            names=names,
            measured=measured,
            files=files,
            decided_by=decided_by,
            stage=stage,
        )

    def _compiler(
        self,
        shard: _Shard,
        all_shards: Sequence[_Shard],
        beside: Beside,
        graphs: Sequence[_Graphs],
    ) -> ShardBinaries:
        """``graphs``: the shard's own, and those of the next one if there is one."""

        def prepare_next() -> None:
            if graphs[0].asked:
                for following in graphs[1:]:
                    following.make_once()

        return ShardBinaries(
            plan=self.plan,
            facts=self.checkpoint.facts,
            stages=self.stages.after(graphs[0].make_once),
            meter=self.meter,
            progress=self.progress,
            embeddings=self.embeddings,
            graphs=shard.stage,
            paths={n: [each.stage.path / each.names[n] for each in all_shards] for n in shard.names},
            sdk=self.sdk,
            number=shard.number,
            compare=partial(self._compare, shard.layers),
            beside=beside,
            prepare_next=prepare_next,
        )

    def _shard_stage(self, shard: _Shard, table: Mapping[str, Encoding], beside: Beside) -> Stage:
        make = partial(self._quantise_shard, shard, table, beside)
        return self.stages.folder(_shard_stage(shard.number), shard.decided_by, make)

    def _quantise_shard(self, shard: _Shard, table: Mapping[str, Encoding], beside: Beside, folder: Path) -> None:
        """The graphs that are compiled, their weights in one file, each read from the checkpoint in its turn."""
        from harness.model.graph import FloatType, build_graph
        from harness.model.held import keep_grids
        from harness.model.quantize import four_bit_weights, quantize_graph
        from harness.model.quantized_io import check_quantized_io, with_cache
        from harness.model.storage import LazyStore, TensorStore, save_graph

        facts, scheme = self.checkpoint.facts, SCHEMES.get(self.plan.precision)
        number, layers, lazy = shard.number, shard.layers, LazyStore()

        def quantising(line: str) -> None:
            beside.check()
            self.progress(f"quantising: {line}")

        with TensorStore(folder / "graph.data") as store:
            for name, (n_tokens, form) in shard.files.items():
                self.progress(
                    f"shard {number} of {self.n_shards}, AR-{n_tokens}: layers {layers.start + 1}-{layers.stop}"
                )
                model = build_graph(
                    self.checkpoint,
                    n_tokens=n_tokens,
                    context_length=self.plan.context_length,
                    float_type=FloatType.FLOAT16 if scheme is None else FloatType.FLOAT32,
                    form=form,
                    store=store if scheme is None else lazy,
                    layers=layers,
                    name=f"ar{n_tokens}" + ("" if self.n_shards == 1 else f"_shard{number}"),
                )
                if scheme is not None:
                    rounded = four_bit_weights(model, scheme, lazy)
                    if self.plan.weights == "gptq" and self._calibrated is not None:
                        rounded = self._calibrated.weights(layers)
                    weights = keep_grids(
                        self.checkpoint, rounded, block=scheme.block, layers=layers, progress=self.progress
                    )
                    model = quantize_graph(model, table, scheme, weights, folder=lazy, store=store, progress=quantising)
                    if scheme.activation_bits > 8:
                        model = with_cache(model, shard.kv, facts.n_layers)
                save_graph(folder / name, model)
                if scheme is not None:
                    spec = graph_spec(folder / name, n_tokens)
                    check_quantized_io(spec.inputs, spec.outputs, facts.n_layers)

    def _measured(self, quality: LayerQuality, shard: _Shard, graphs: _Graphs, before: Stage | None) -> Stage:
        def graph() -> Path:
            graphs.make_once()
            return shard.stage.path / shard.measured

        return quality.run_shard(shard.number, shard.layers, shard.decided_by, before, graph)

    def _compare(self, layers: range, steps: Sequence[Step]) -> float:
        """Correlation of the worst output of a shard's graph on the emulator with the CPU's, after some tokens there.

        What goes into the shard is what the float model put out over the calibration text, or noise where it ran not.
        """
        ((path, spec, binary),) = steps
        watched = Watched(CpuGraph(path, spec))
        part = PartDecoder(
            [with_embeddings(watched, self.embeddings)],
            self.checkpoint.facts,
            layers,
            context_length=self.plan.context_length,
            mask_value=mask_value(self.plan.precision),
        )
        n_rows = min(max(N_TOKENS, spec.n_tokens), self.plan.context_length)
        rows = self._given(layers, n_rows, part)
        for start in range(0, len(rows), spec.n_tokens):
            part.step(rows[start : start + spec.n_tokens])
        return agreement(watched, spec, binary)

    def _given(self, layers: range, n_rows: int, part: PartDecoder) -> NDArray[Any]:
        facts = self.checkpoint.facts
        if layers.start == 0:
            return np.array([index * facts.vocab_size // n_rows for index in range(n_rows)], dtype=np.int32)
        if self._calibrated is None:
            return encode(np.random.default_rng(7).standard_normal((n_rows, facts.hidden_size), np.float32), part.given)
        return encode(self._calibrated.sample(layers.start - 1)[:n_rows], part.given)


def bundled_text() -> Path:
    """What is calibrated on where the user gives no text, and the model cannot be asked for one."""
    if not _BUNDLED.is_file():
        raise UserError(
            "a model that is prepared layer by layer needs a text to calibrate on",
            found=f"no {_BUNDLED}",
            next_step="give --calibration FILE, some pages of plain text",
        )
    return _BUNDLED


def _shard_stage(number: int) -> str:
    return f"quantised shard {number}"
