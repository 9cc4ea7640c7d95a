"""The ONNX file around a context binary: one EPContext node, by which onnxruntime-qnn loads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import onnx
from onnx import TensorProto, helper

from harness.compiler.libraries import EP_NAME
from harness.compiler.messages import BinaryGraph
from harness.record.artifact import TensorSpec
from harness.record.vocabulary import DType

_ELEMENTS: Final[Mapping[DType, int]] = MappingProxyType(
    {
        DType.INT32: TensorProto.INT32,
        DType.FLOAT16: TensorProto.FLOAT16,
        DType.FLOAT32: TensorProto.FLOAT,
        DType.UFIXED8: TensorProto.UINT8,
        DType.UFIXED16: TensorProto.UINT16,
        DType.SFIXED8: TensorProto.INT8,
        DType.SFIXED16: TensorProto.INT16,
    }
)


def wrapper_model(binary: str, graph: BinaryGraph) -> onnx.ModelProto:
    """A model that runs ``graph`` of ``binary``, a path relative to where the model will be saved."""

    def values(tensors: Iterable[TensorSpec]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(t.name, _ELEMENTS[t.dtype], t.shape) for t in tensors]

    node = helper.make_node(
        "EPContext",
        [tensor.name for tensor in graph.inputs],
        [tensor.name for tensor in graph.outputs],
        name=graph.name,
        domain="com.microsoft",
        main_context=1,
        embed_mode=0,
        ep_cache_context=binary,
        source=EP_NAME,
        partition_name=graph.name,
    )
    return helper.make_model(
        helper.make_graph([node], "context", values(graph.inputs), values(graph.outputs)),
        opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)],
        ir_version=11,
        producer_name="snapgate",
    )
