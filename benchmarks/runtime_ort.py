"""A decode loop on onnxruntime-qnn as one would write it in Python: bound once, updated in place, one store a step."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime

ELEMENTS = {2: np.uint8, 4: np.uint16, 10: np.float16}
EP = "QNNExecutionProvider"


def main(path: Path) -> None:
    facts = dict(line.split(" ", 1) for line in path.read_text().splitlines())
    layers, heads, dim, context, vocabulary = map(int, facts["shape"].split())
    kv_type, _, kv_zero = map(int, facts["kv"].split())
    io_type, masked, visible = map(int, facts["io"].split())
    tokens, n_gen = [int(word) for word in facts["tokens"].split()], int(facts["gen"])
    columns = context - 1

    onnxruntime.register_execution_provider_library(EP, facts["provider"])
    device = next(device for device in onnxruntime.get_ep_devices() if device.ep_name == EP)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices([device], {"backend_path": facts["backend"]})
    session = onnxruntime.InferenceSession(facts["model"], options)

    kv, io = ELEMENTS[kv_type], ELEMENTS[io_type]
    ids = np.zeros((1, 1), np.int32)
    mask = np.full((1, 1, 1, context), masked, np.uint16)
    mask[..., -1] = visible
    cos_table = np.fromfile(facts["cos"], np.uint16).reshape(context, dim // 2)
    sin_table = np.fromfile(facts["sin"], np.uint16).reshape(context, dim // 2)
    cos, sin = np.zeros((2, 1, 1, 1, dim // 2), np.uint16)
    logits = np.zeros((1, 1, vocabulary), np.uint16)
    past_keys = np.full((layers, heads, 1, dim, columns), kv_zero, kv)
    past_values = np.full((layers, heads, 1, columns, dim), kv_zero, kv)
    keys = np.zeros((layers, heads, 1, dim, 1), kv)
    values = np.zeros((layers, heads, 1, 1, dim), kv)

    binding = session.io_binding()

    def bind(into, name, array, element):
        into(name, "cpu", 0, element, array.shape, array.ctypes.data)

    bind(binding.bind_input, "input_ids", ids, np.int32)
    for name, array in (("attention_mask", mask), ("position_ids_cos", cos), ("position_ids_sin", sin)):
        bind(binding.bind_input, name, array, io)
    bind(binding.bind_output, "logits", logits, io)
    for layer in range(layers):
        bind(binding.bind_input, f"past_key_{layer}_in", past_keys[layer], kv)
        bind(binding.bind_input, f"past_value_{layer}_in", past_values[layer], kv)
        bind(binding.bind_output, f"past_key_{layer}_out", keys[layer], kv)
        bind(binding.bind_output, f"past_value_{layer}_out", values[layer], kv)

    run, row, mask_row = session.run_with_iobinding, logits[0, 0], mask[0, 0, 0]
    cos_row, sin_row, id_cell = cos[0, 0, 0], sin[0, 0, 0], ids[0]
    key_columns, new_keys = past_keys, keys[..., 0]
    value_columns, new_values = past_values, values[:, :, :, 0]
    chosen: list[int] = []
    position, following = 0, 0
    queue = iter(tokens)
    while len(chosen) < n_gen:
        token = next(queue, following)
        id_cell[0] = token
        cos_row[:] = cos_table[position]
        sin_row[:] = sin_table[position]
        run(binding)
        if position < columns:
            key_columns[..., position] = new_keys
            value_columns[:, :, :, position] = new_values
            mask_row[position] = visible
        position += 1
        following = int(row.argmax())
        if position >= len(tokens):
            chosen.append(following)
    sys.stdout.write(" ".join(map(str, chosen)) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
