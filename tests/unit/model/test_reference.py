from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import ArtifactError
from harness.model.reference import CpuGraph, _cpu, reference_file
from harness.record.comparison import Leg

BLOCK_AND_IMPORT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"onnx", "safetensors", "onnxruntime_qnn"}:
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import harness.model.reference, harness.model.decoder, harness.model.perplexity, harness.model.checkpoint
import harness.compiler.prepare
"""


def test_a_host_without_the_prepare_extra_can_import_the_reference() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK_AND_IMPORT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_file_that_is_no_onnx_graph_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"not a graph")
    with pytest.raises(ArtifactError, match=r"cannot load .*broken.onnx"):
        CpuGraph(path)


def test_the_phone_has_no_reference_graph() -> None:
    with pytest.raises(ArtifactError, match=r"the phone leg has no reference graph"):
        reference_file(Leg.PHONE, 64)


def test_cpu_facts_name_the_model_and_the_flags_that_change_integer_kernels(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(
        "processor\t: 0\nmodel name\t: First CPU\nflags\t\t: fpu avx2 sse4_2 avx512_vnni\n\n"
        "processor\t: 1\nmodel name\t: Second CPU\nflags\t\t: fpu\n"
    )
    assert _cpu(path) == ("First CPU", ("avx2", "avx512_vnni"))


def test_a_host_that_does_not_say_what_its_cpu_is_has_an_unknown_one(tmp_path: Path) -> None:
    assert _cpu(tmp_path / "missing") == ("unknown", ())
