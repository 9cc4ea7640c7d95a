"""Static ONNX graphs of a checkpoint: AR-N, with the KV cache as graph inputs and outputs.

Every tensor has the same name in every AR-N graph of a model, so one table of activation ranges serves them all.
1/sqrt(head_dim) is folded into the query weights (into the query norm where there is one); grouped queries use MatMul's
batch broadcast; embedding table and output head are two initialisers even where the checkpoint ties them, because they
are quantised differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from harness.model.architecture import BIAS_OF, Role, check_window
from harness.model.checkpoint import Checkpoint
from harness.model.form import Attention, Embeddings, GraphForm, Linear, Logits, RmsNorm
from harness.model.interface import (
    COS,
    INPUT_EMBEDS,
    INPUT_IDS,
    LOGITS,
    MASK,
    SIN,
    boundary,
    input_shapes,
    output_shapes,
    past_key_in,
    past_key_out,
    past_value_in,
    past_value_out,
)
from harness.model.storage import Store, TensorStore, tensor_of

OPSET: Final = 23
"""The first opset with RMSNormalization."""
IR_VERSION: Final = 11
"""The IR version that belongs to opset 23; every onnxruntime that knows the opset reads it."""
DEFAULT_FORM: Final = GraphForm()
CONV: Final = "_conv"
"""Behind the name of a linear layer's output: what its Conv puts out, before it is laid out in rows again."""


class FloatType(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"


def build_graph(
    checkpoint: Checkpoint,
    *,
    n_tokens: int,
    context_length: int,
    float_type: FloatType = FloatType.FLOAT32,
    form: GraphForm = DEFAULT_FORM,
    store: Store | None = None,
    layers: range | None = None,
    name: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> onnx.ModelProto:
    """The AR-``n_tokens`` graph. Every float input, weight and output has ``float_type``.

    Weights go to ``store`` one at a time, each read only if the store does not have it; without one, into the model.
    ``layers``: only these, as ``split_graph`` would cut them out; default all. ``name``: default ``ar<n_tokens>``.
    Raises UserError for a context that reaches past the model's sliding window.
    """
    facts = checkpoint.facts
    check_window(facts, context_length)
    build = _Builder(np.dtype(float_type.value), TensorStore() if store is None else store, n_tokens, form)
    layers = range(facts.n_layers) if layers is None else layers
    if layers.start > 0:
        hidden = boundary(layers.start - 1)
    elif form.embeddings is Embeddings.GRAPH:
        embedding = build.weight("embedding", lambda: checkpoint.weight(Role.EMBEDDING))
        hidden = build.node("Gather", [embedding, INPUT_IDS], "embedding_out", axis=0)
    else:
        hidden = INPUT_EMBEDS
    for layer in layers:
        progress(f"AR-{n_tokens}: layer {layer + 1} of {facts.n_layers}")
        hidden = _attention_block(build, checkpoint, layer, hidden)
        hidden = _feed_forward_block(build, checkpoint, layer, hidden)
    n_rows = 1 if form.logits is Logits.LAST else n_tokens
    if layers.stop == facts.n_layers:
        _head(build, checkpoint, hidden, n_rows)

    float_code = helper.np_dtype_to_tensor_dtype(build.dtype)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32 if name == INPUT_IDS else float_code, shape)
        for name, shape in input_shapes(facts, n_tokens, context_length, form.embeddings, layers).items()
    ]
    outputs = [
        helper.make_tensor_value_info(name, float_code, shape)
        for name, shape in output_shapes(facts, n_tokens, n_logits=n_rows, layers=layers).items()
    ]
    graph = helper.make_graph(build.nodes, name or f"ar{n_tokens}", inputs, outputs, build.initializers)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="snapgate",
    )
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _head(build: _Builder, checkpoint: Checkpoint, hidden: str, n_rows: int) -> None:
    normed = _rms_norm(build, checkpoint, Role.FINAL_NORM, None, hidden, "final_norm")
    if n_rows < build.n_tokens:
        last = build.n_tokens - 1
        start, end = build.integers("last_token", last), build.integers("behind_last_token", last + 1)
        normed = build.node("Slice", [normed, start, end, build.integers("token_axis", 1)], "final_norm_last")
    build.linear(normed, "lm_head", lambda: checkpoint.weight(Role.HEAD), LOGITS, n_rows=n_rows)


def weight_name(layer: int, role: Role) -> str:
    """The initialiser of a matrix: (inputs, outputs), or the kernel (outputs, inputs, 1, 1) of a Conv."""
    return f"layer{layer}_{role}_weight"


def query_factor(checkpoint: Checkpoint) -> float:
    """What is folded into the query matrix; the query norm takes it where there is one."""
    return 1.0 if checkpoint.has(Role.QUERY_NORM) else float(checkpoint.facts.head_dim) ** -0.5


class _Builder:
    """Nodes and initialisers in order. A node is named after its output."""

    def __init__(self, dtype: np.dtype[Any], store: Store, n_tokens: int, form: GraphForm) -> None:
        self.dtype, self.n_tokens, self.form = dtype, n_tokens, form
        self._store = store
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._known: set[str] = set()
        self._pictures: dict[str, str] = {}
        """Rows, and the same numbers as the picture that a Conv reads."""

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def weight(self, name: str, values: Callable[[], NDArray[np.float32]]) -> str:
        return self._initializer(name, lambda: values().astype(self.dtype, copy=False))

    def linear(
        self, rows: str, weight: str, values: Callable[[], NDArray[np.float32]], output: str, *, n_rows: int = 0
    ) -> str:
        """(1, N, inputs) times ``values`` (outputs, inputs), transposed. ``n_rows``: default all of a step."""
        if self.form.linear is Linear.MATMUL:
            return self.node("MatMul", [rows, self.weight(weight, lambda: values().T)], output)
        n_rows = n_rows or self.n_tokens
        if rows not in self._pictures:
            shape = self.integers(f"picture_of_{n_rows}", 1, 1, n_rows, -1)
            flat = self.node("Reshape", [rows, shape], f"{rows}_flat_picture")
            self._pictures[rows] = self.node("Transpose", [flat], f"{rows}_picture", perm=[0, 3, 1, 2])
        kernel = self.weight(weight, lambda: values()[:, :, None, None])
        conv = self.node("Conv", [self._pictures[rows], kernel], f"{output}{CONV}", kernel_shape=[1, 1])
        lying = self.node("Transpose", [conv], f"{output}_lying", perm=[0, 2, 3, 1])
        return self.node("Reshape", [lying, self.integers(f"rows_of_{n_rows}", 1, n_rows, -1)], output)

    def integers(self, name: str, *values: int) -> str:
        """A small int64 constant; asked for twice under one name, it is kept once."""
        return self._constant(name, np.array(values, dtype=np.int64))

    def scalar(self, name: str, value: float) -> str:
        return self._constant(name, np.array(value, dtype=self.dtype))

    def _constant(self, name: str, values: NDArray[Any]) -> str:
        """Shapes differ from graph to graph under one name, so they are never shared."""
        if name not in self._known:
            self._known.add(name)
            self.initializers.append(tensor_of(name, values))
        return name

    def _initializer(self, name: str, values: Callable[[], NDArray[Any]]) -> str:
        self.initializers.append(self._store.initializer(name, values))
        return name


def _rms_norm(
    build: _Builder,
    checkpoint: Checkpoint,
    role: Role,
    layer: int | None,
    x: str,
    name: str,
    *,
    scale: float = 1.0,
) -> str:
    """Over the last axis; ``scale`` is folded into the weights."""
    gamma = build.weight(f"{name}_gamma", lambda: checkpoint.weight(role, layer) * np.float32(scale))
    epsilon = checkpoint.facts.rms_norm_eps
    if build.form.rmsnorm is RmsNorm.OPERATOR:
        return build.node("RMSNormalization", [x, gamma], f"{name}_out", axis=-1, epsilon=epsilon)
    square = build.node("Pow", [x, build.scalar("two", 2.0)], f"{name}_square")
    mean = build.node("ReduceMean", [square, build.integers("last_axis", -1)], f"{name}_mean", keepdims=1)
    shifted = build.node("Add", [mean, build.scalar("rms_epsilon", epsilon)], f"{name}_shifted")
    rms = build.node("Sqrt", [shifted], f"{name}_rms")
    unit = build.node("Div", [x, rms], f"{name}_unit")
    return build.node("Mul", [unit, gamma], f"{name}_out")


def _rotate(build: _Builder, x: str, name: str, half: int) -> str:
    """RoPE over the last axis: pairs are (i, i + half), as Hugging Face lays them out."""
    axis = build.integers("slice_axis", 3)
    start, middle, end = (build.integers(f"at_{at}", at) for at in (0, half, 2 * half))
    low = build.node("Slice", [x, start, middle, axis], f"{name}_low")
    high = build.node("Slice", [x, middle, end, axis], f"{name}_high")
    low_cos = build.node("Mul", [low, COS], f"{name}_low_cos")
    high_sin = build.node("Mul", [high, SIN], f"{name}_high_sin")
    high_cos = build.node("Mul", [high, COS], f"{name}_high_cos")
    low_sin = build.node("Mul", [low, SIN], f"{name}_low_sin")
    new_low = build.node("Sub", [low_cos, high_sin], f"{name}_new_low")
    new_high = build.node("Add", [high_cos, low_sin], f"{name}_new_high")
    return build.node("Concat", [new_low, new_high], f"{name}_rotated", axis=3)


def _attention_block(build: _Builder, checkpoint: Checkpoint, layer: int, hidden: str) -> str:
    facts, n_tokens = checkpoint.facts, build.n_tokens
    groups, head_dim = facts.n_kv_heads, facts.head_dim
    per_group = facts.n_heads // groups
    at = f"layer{layer}"
    x = _rms_norm(build, checkpoint, Role.INPUT_NORM, layer, hidden, f"{at}_input_norm")

    def project(role: Role, scale: float, heads: int) -> str:
        """(1, N, hidden) to (N, n_kv_heads, heads per group, head_dim)."""
        bias = BIAS_OF[role]
        product = build.linear(
            x,
            weight_name(layer, role),
            lambda: checkpoint.weight(role, layer) * np.float32(scale),
            f"{at}_{role}_{'product' if checkpoint.has(bias) else 'flat'}",
        )
        flat = product
        if checkpoint.has(bias):
            vector = build.weight(f"{at}_{bias}", lambda: checkpoint.weight(bias, layer) * np.float32(scale))
            flat = build.node("Add", [product, vector], f"{at}_{role}_flat")
        shape = build.integers(f"shape_{heads}_heads", n_tokens, groups, heads, head_dim)
        return build.node("Reshape", [flat, shape], f"{at}_{role}_split")

    def normed(role: Role, norm: Role, scale: float, heads: int) -> str:
        """A projection, normalised over each head where the architecture does so, and times ``scale`` either way."""
        split = project(role, 1.0 if checkpoint.has(norm) else scale, heads)
        if not checkpoint.has(norm):
            return split
        return _rms_norm(build, checkpoint, norm, layer, split, f"{at}_{norm}", scale=scale)

    def to_heads(split: str, output: str) -> str:
        return build.node("Transpose", [split], output, perm=[1, 2, 0, 3])

    query = to_heads(normed(Role.QUERY, Role.QUERY_NORM, head_dim**-0.5, per_group), f"{at}_query")
    key = to_heads(normed(Role.KEY, Role.KEY_NORM, 1.0, 1), f"{at}_key")
    value = to_heads(project(Role.VALUE, 1.0, 1), past_value_out(layer))
    query = _rotate(build, query, f"{at}_query", head_dim // 2)
    key = _rotate(build, key, f"{at}_key", head_dim // 2)
    key_columns = build.node("Transpose", [key], past_key_out(layer), perm=[0, 1, 3, 2])

    all_keys = build.node("Concat", [past_key_in(layer), key_columns], f"{at}_all_keys", axis=3)
    all_values = build.node("Concat", [past_value_in(layer), value], f"{at}_all_values", axis=2)
    attend = _heads_together if build.form.attention is Attention.MULTI_HEAD else _heads_apart
    by_token = attend(build, query, all_keys, all_values, at, (groups, per_group))
    flat_shape = build.integers("shape_flat_heads", 1, n_tokens, facts.n_heads * head_dim)
    flat = build.node("Reshape", [by_token, flat_shape], f"{at}_mixed_flat")
    out = build.linear(
        flat, weight_name(layer, Role.OUTPUT), lambda: checkpoint.weight(Role.OUTPUT, layer), f"{at}_attention_out"
    )
    return build.node("Add", [hidden, out], f"{at}_after_attention")


def _attend(build: _Builder, query: str, keys: str, values: str, at: str) -> str:
    scores = build.node("MatMul", [query, keys], f"{at}_scores")
    masked = build.node("Add", [scores, MASK], f"{at}_masked_scores")
    weights = build.node("Softmax", [masked], f"{at}_attention", axis=-1)
    return build.node("MatMul", [weights, values], f"{at}_mixed")


def _heads_together(build: _Builder, query: str, keys: str, values: str, at: str, _: tuple[int, int]) -> str:
    mixed = _attend(build, query, keys, values, at)
    return build.node("Transpose", [mixed], f"{at}_mixed_by_token", perm=[2, 0, 1, 3])


def _heads_apart(build: _Builder, query: str, keys: str, values: str, at: str, heads: tuple[int, int]) -> str:
    """(1, 1, N, n_heads * head_dim), each head computed on its own."""
    n_groups, per_group = heads
    first, both = build.integers("group_axis", 0), build.integers("head_axes", 0, 1)
    mixed = []
    for group in range(n_groups):
        span = [build.integers(f"group_{group}", group), build.integers(f"group_{group + 1}", group + 1), first]
        own_keys = build.node("Slice", [keys, *span], f"{at}_group{group}_keys")
        own_values = build.node("Slice", [values, *span], f"{at}_group{group}_values")
        for index in range(per_group):
            start = build.integers(f"head_{group}_{index}", group, index)
            end = build.integers(f"head_{group + 1}_{index + 1}", group + 1, index + 1)
            name = f"{at}_head{group * per_group + index}"
            own_query = build.node("Slice", [query, start, end, both], f"{name}_query")
            mixed.append(_attend(build, own_query, own_keys, own_values, name))
    return build.node("Concat", mixed, f"{at}_mixed_heads", axis=3)


def _feed_forward_block(build: _Builder, checkpoint: Checkpoint, layer: int, hidden: str) -> str:
    at = f"layer{layer}"
    x = _rms_norm(build, checkpoint, Role.POST_NORM, layer, hidden, f"{at}_post_norm")

    def linear(role: Role, source: str) -> str:
        return build.linear(source, weight_name(layer, role), lambda: checkpoint.weight(role, layer), f"{at}_{role}")

    gate = linear(Role.GATE, x)
    up = linear(Role.UP, x)
    sigmoid = build.node("Sigmoid", [gate], f"{at}_sigmoid")
    activated = build.node("Mul", [gate, sigmoid], f"{at}_silu")
    product = build.node("Mul", [activated, up], f"{at}_inner")
    return build.node("Add", [hidden, linear(Role.DOWN, product)], f"{at}_after_feed_forward")
