"""Encodings JSON as the QNN converters and AIMET exchange them: the 0.x and the 1.0 layout, read and written.

Layouts, after the public AIMET documentation::

    0.6.1   {"version": "0.6.1", "activation_encodings": {NAME: [{"bitwidth", "dtype", "is_symmetric", "min", "max",
             "offset", "scale"}]}, "param_encodings": {NAME: [one object a channel]}}
    1.0.0   {"version": "1.0.0", "activation_encodings": [{"name", "bw", "dtype", "enc_type", "is_sym", "offset": [..],
             "scale": [..]}], "param_encodings": [..]}

Offsets are minus the zero point of the unsigned integer: real = scale * (q + offset). Weights are symmetric: the offset
of ``bits`` bits is -2^(bits-1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from harness.errors import UserError

LAYOUTS: Final = ("0.6.1", "1.0.0")
_SECTIONS: Final = ("activation_encodings", "param_encodings")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEncoding:
    """What a file says of one tensor, or of all whose name fits a pattern (``layer*_scores``)."""

    name: str
    bits: int
    is_float: bool = False
    """Left out of quantisation."""
    scales: tuple[float, ...] = ()
    """One; of a weight one an output channel, or block by block. Empty: only ``bits`` is asked for."""
    zero_points: tuple[int, ...] = ()
    block: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingsFile:
    activations: Sequence[TensorEncoding]
    parameters: Sequence[TensorEncoding]


def read_encodings(path: Path) -> EncodingsFile:
    """Either layout. Every fault names file, section and tensor."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as exc:
        raise UserError(
            f"{path} cannot be read as encodings", found=str(exc), expected="JSON", next_step="check the path"
        ) from exc
    sections = {name: data.get(name, {}) for name in _SECTIONS} if isinstance(data, dict) else {}
    if not sections or not set(_SECTIONS) & set(data):
        raise UserError(
            f"{path} is no encodings file", found="no activation_encodings and no param_encodings", expected=_layouts()
        )
    found: list[tuple[TensorEncoding, ...]] = []
    for section, entries in sections.items():
        where = f"{path}: {section}"
        if isinstance(entries, dict):
            found.append(tuple(_old(f"{where}: {name}", name, channels) for name, channels in entries.items()))
        elif isinstance(entries, list):
            found.append(tuple(_new(where, entry) for entry in entries))
        else:
            raise UserError(f"{where} has another layout", found=type(entries).__name__, expected=_layouts())
    return EncodingsFile(activations=found[0], parameters=found[1])


def write_encodings(path: Path, encodings: EncodingsFile, layout: str = "1.0.0") -> None:
    """One tensor after the other, a line each: a large model has millions of scales."""
    if layout not in LAYOUTS:
        raise UserError("unknown encodings layout", found=layout, expected=_layouts(), next_step="choose one of them")
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.writelines(_lines(encodings, layout))
        temporary.replace(path)
    except OSError as exc:
        raise UserError(f"{path} cannot be written", found=str(exc), next_step="choose another file") from exc
    finally:
        temporary.unlink(missing_ok=True)


def _lines(encodings: EncodingsFile, layout: str) -> Iterator[str]:
    old = layout == LAYOUTS[0]
    yield f'{{"version": {json.dumps(layout)}'
    for section, side in zip(_SECTIONS, (encodings.activations, encodings.parameters), strict=True):
        yield f',\n"{section}": {"{" if old else "["}'
        for index, encoding in enumerate(side):
            entry = json.dumps(_to_old(encoding) if old else _to_new(encoding))
            yield f"{',' if index else ''}\n" + (f"{json.dumps(encoding.name)}: {entry}" if old else entry)
        yield "}" if old else "]"
    yield "}\n"


def _layouts() -> str:
    return f"the {LAYOUTS[0]} layout (tensors by name) or the {LAYOUTS[1]} layout (a list of tensors)"


def _old(where: str, name: str, channels: Any) -> TensorEncoding:
    if not isinstance(channels, list) or not channels:
        raise UserError(f"{where} has no encoding", found=repr(channels)[:60], expected="a list of objects")
    read = [_channel(where, channel) for channel in channels]
    first = read[0]
    return replace(
        first,
        name=name,
        scales=tuple(scale for channel in read for scale in channel.scales),
        zero_points=tuple(zero for channel in read for zero in channel.zero_points),
    )


def _channel(where: str, entry: Any) -> TensorEncoding:
    values = _object(where, entry)
    bits = _integer(where, values, "bitwidth")
    if str(values.get("dtype", "int")).lower() == "float":
        return TensorEncoding(name="", bits=bits, is_float=True)
    symmetric = str(values.get("is_symmetric", "False")).lower() == "true"
    if "scale" in values:
        scale = _number(where, values, "scale")
        offset = _integer(where, values, "offset") if "offset" in values else -(2 ** (bits - 1))
        return TensorEncoding(name="", bits=bits, scales=(scale,), zero_points=(-offset,))
    if "min" in values or "max" in values:
        low, high = _number(where, values, "min"), _number(where, values, "max")
        if not low <= 0.0 <= high or low == high:
            raise UserError(
                f"{where}: zero lies outside min and max", found=f"{low} to {high}", expected="min <= 0 <= max"
            )
        if symmetric:
            scale, zero = max(-low, high) / (2 ** (bits - 1) - 1), 2 ** (bits - 1)
        else:
            scale = (high - low) / (2**bits - 1)
            zero = round(-low / scale)
        return TensorEncoding(name="", bits=bits, scales=(scale,), zero_points=(zero,))
    return TensorEncoding(name="", bits=bits)


def _new(where: str, entry: Any) -> TensorEncoding:
    values = _object(where, entry)
    name = values.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(f"{where} has an encoding without a name", found=repr(entry)[:60], expected='"name": "..."')
    where = f"{where}: {name}"
    bits = _integer(where, values, "bw")
    if str(values.get("dtype", "INT")).upper() == "FLOAT":
        return TensorEncoding(name=name, bits=bits, is_float=True)
    scales, offsets = values.get("scale", []), values.get("offset", [])
    if not isinstance(scales, list) or not isinstance(offsets, list):
        raise UserError(f"{where}: scale and offset are no lists", expected='"scale": [..], "offset": [..]')
    if not offsets:
        offsets = [-(2 ** (bits - 1))] * len(scales)
    if len(scales) != len(offsets):
        raise UserError(
            f"{where}: {len(scales)} scales and {len(offsets)} offsets", expected="as many of one as of other"
        )
    return TensorEncoding(
        name=name,
        bits=bits,
        scales=tuple(_number(where, {"scale": scale}, "scale") for scale in scales),
        zero_points=tuple(-_integer(where, {"offset": offset}, "offset") for offset in offsets),
        block=_integer(where, values, "block_size") if values.get("block_size") else None,
    )


def _object(where: str, entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise UserError(f"{where} holds something else than an object", found=repr(entry)[:60], expected="an object")
    return entry


def _integer(where: str, values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if type(value) not in (int, float) or value is None or int(value) != value:
        raise UserError(f"{where}: {key} cannot be used", found=repr(value), expected="a whole number")
    return int(value)


def _number(where: str, values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    if type(value) not in (int, float) or value is None or (key == "scale" and not value > 0):
        raise UserError(f"{where}: {key} cannot be used", found=repr(value), expected="a number above 0 for a scale")
    return float(value)


def _to_old(encoding: TensorEncoding) -> list[dict[str, Any]]:
    if encoding.is_float:
        return [{"bitwidth": encoding.bits, "dtype": "float"}]
    top = 2**encoding.bits - 1
    return [
        {
            "bitwidth": encoding.bits,
            "dtype": "int",
            "is_symmetric": str(zero == 2 ** (encoding.bits - 1)),
            "max": scale * (top - zero),
            "min": -scale * zero,
            "offset": -zero,
            "scale": scale,
        }
        for scale, zero in zip(encoding.scales, encoding.zero_points, strict=True)
    ]


def _to_new(encoding: TensorEncoding) -> dict[str, Any]:
    if encoding.is_float:
        return {"name": encoding.name, "bw": encoding.bits, "dtype": "FLOAT"}
    kind = "PER_BLOCK" if encoding.block else "PER_CHANNEL" if len(encoding.scales) > 1 else "PER_TENSOR"
    return {
        "name": encoding.name,
        "bw": encoding.bits,
        "dtype": "INT",
        "enc_type": kind,
        "is_sym": all(zero == 2 ** (encoding.bits - 1) for zero in encoding.zero_points),
        "offset": [-zero for zero in encoding.zero_points],
        "scale": list(encoding.scales),
        **({"block_size": encoding.block} if encoding.block else {}),
    }
