"""Checkpoint to ONNX to QDQ, and the ONNX Runtime reference. Knows no phone and no QNN library."""
