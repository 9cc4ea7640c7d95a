"""ONNX to context binaries for one SoC, by onnxruntime-qnn."""
