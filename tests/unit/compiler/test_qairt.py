"""``--compiler qairt``: what the SDK's tools are told, and what is made of what they leave. No live SDK is run here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime_qnn", reason="needs the prepare extra")

import onnx

from harness.compiler.compile import Compiled, Source, compile_graphs
from harness.compiler.execute import emulated_decoder
from harness.compiler.qairt import PYTHON_VARIABLE, Sdk, backend_config, converter_argv, find_sdk, generator_argv
from harness.errors import CompileError, HostError
from harness.model.io_specs import io_specs
from harness.record.artifact import Artifact
from harness.soc import KvPrecision, find_soc

Prepare = Callable[..., Artifact]
_spec = importlib.util.spec_from_file_location("standin_sdk", Path(__file__).with_name("standin_sdk.py"))
assert _spec is not None
assert _spec.loader is not None
_standin = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_standin)
parse = _standin.parse

SDK = Sdk(root=Path("/opt/qairt"), identity="")
GEN3 = find_soc("gen3")


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    root: Path = _standin.make_sdk(tmp_path / "sdk")
    return root


def test_a_graph_is_converted_as_it_is() -> None:
    argv = converter_argv(SDK, Path("model/kv8_ar1.onnx"), Path("kv8_ar1.dlc"), soc=GEN3, fp16=False)
    tool = "/opt/qairt/bin/x86_64-linux-clang/qairt-converter"
    assert argv[:6] == ["python3", tool, "--input_network", "model/kv8_ar1.onnx", "--output_path", "kv8_ar1.dlc"]
    taken = parse("qairt-converter", argv[2:])
    assert (taken.onnx_skip_simplification, taken.preserve_io_datatype) == (True, [])
    assert (taken.target_backend, taken.target_soc_model, taken.float_bitwidth) == ("HTP", "SM8650", None)


def test_floats_become_half_floats_where_the_precision_has_them() -> None:
    argv = converter_argv(SDK, Path("a.onnx"), Path("a.dlc"), soc=GEN3, fp16=True)
    taken = parse("qairt-converter", argv[2:])
    assert (taken.float_bitwidth, taken.float_bias_bitwidth) == ("16", "16")


def test_all_graphs_go_into_one_binary() -> None:
    argv = generator_argv(SDK, [Path("ar64.dlc"), Path("ar1.dlc")], Path("backend.json"), Path("out"))
    taken = parse("qnn-context-binary-generator", argv[1:])
    assert taken.dlc_path == "ar64.dlc,ar1.dlc"
    assert taken.backend == "/opt/qairt/lib/x86_64-linux-clang/libQnnHtp.so"
    assert taken.model == "/opt/qairt/lib/x86_64-linux-clang/libQnnModelDlc.so"
    assert (taken.config_file, taken.binary_file, taken.output_dir) == ("backend.json", "compiled", "out")


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["--input_network", "a.onnx", "--soc_model", "SM8650"], "unrecognized arguments: --soc_model"),
        (["--input_network", "a.onnx", "--target_backend", "htp"], "invalid choice: 'htp'"),
        (["--output_path", "a.dlc"], "required: --input_network"),
    ],
)
def test_the_recorded_options_refuse_what_the_tool_refuses(
    arguments: list[str], refused: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse("qairt-converter", arguments)
    assert refused in capsys.readouterr().err


def test_the_backend_is_told_soc_memory_and_level() -> None:
    assert backend_config(["ar64", "ar1"], soc=GEN3, level=3, fp16=False, shared=True) == {
        "graphs": [{"graph_names": ["ar64", "ar1"], "O": 3, "vtcm_mb": GEN3.vtcm_mb}],
        "devices": [{"soc_model": 57, "dsp_arch": "v75"}],
        "context": {"weight_sharing_enabled": True},
    }
    alone = backend_config(["ar1"], soc=GEN3, level=3, fp16=True, shared=False)
    assert alone["graphs"][0]["fp16_relaxed_precision"] == 1
    assert "context" not in alone


def test_without_an_sdk_the_variable_is_named() -> None:
    with pytest.raises(HostError, match="QNN_SDK_ROOT"):
        find_sdk(None)


def test_an_sdk_without_a_tool_is_refused(sdk: Path) -> None:
    (sdk / "bin" / "x86_64-linux-clang" / "qnn-context-binary-generator").unlink()
    with pytest.raises(HostError, match="no bin/x86_64-linux-clang/qnn-context-binary-generator"):
        find_sdk(sdk)


def test_another_build_of_a_tool_is_another_sdk(sdk: Path) -> None:
    before = find_sdk(sdk).identity
    with (sdk / "lib" / "x86_64-linux-clang" / "libQnnModelDlc.so").open("ab") as library:
        library.write(b"\x00")
    assert find_sdk(sdk).identity != before


@pytest.mark.slow
@pytest.mark.lane("qnn")
def test_the_tools_binaries_compute_what_onnxruntime_qnns_do(prepare_small: Prepare, sdk: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    own = prepare_small(out, kv=KvPrecision.KV8)
    kept = Artifact(folder=own.folder.rename(tmp_path / "kept"), manifest=own.manifest)
    made = prepare_small(out, kv=KvPrecision.KV8, compiler="qairt", sdk=sdk)
    assert (kept.manifest.recipe.compiler, made.manifest.recipe.compiler) == ("onnxruntime-qnn", "qairt")
    assert made.manifest.tools["qairt"] == find_sdk(sdk).identity
    assert made.manifest.artifact_id != kept.manifest.artifact_id
    assert [len(context.graphs) for context in made.manifest.contexts] == [1, 1]
    tokens = range(300, 318)
    ours, theirs = (emulated_decoder(artifact).extend(list(tokens)) for artifact in (kept, made))
    np.testing.assert_array_equal(ours, theirs)
    said: list[str] = []
    again = prepare_small(out, kv=KvPrecision.KV8, compiler="qairt", sdk=sdk, progress=said.append)
    assert again.manifest.artifact_id == made.manifest.artifact_id
    assert any("taken as it is" in line for line in said)


@pytest.fixture
def square(tmp_path: Path) -> Path:
    """A graph of float16 (1, 8): y = x * x."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, (1, 8)) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Mul", ["x", "x"], ["y"])], "square", [x], [y])
    opset = [onnx.helper.make_opsetid("", 23)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=11), tmp_path / "square.onnx")
    return tmp_path / "square.onnx"


def compile_square(model: Path, sdk: Path) -> Compiled:
    inputs, outputs = io_specs(onnx.load(model))
    source = Source(model=model, n_tokens=1, inputs=inputs, outputs=outputs)
    binary = model.parent / "binaries" / "square.bin"
    binary.parent.mkdir()
    return compile_graphs([source], soc=GEN3, fp16=True, binary=binary, sdk=find_sdk(sdk), deadline_s=60)


@pytest.mark.lane("qnn")
def test_one_graph_through_both_tools(square: Path, sdk: Path) -> None:
    compiled = compile_square(square, sdk)
    assert (compiled.facts.soc_number, compiled.facts.htp_arch) == (57, 75)
    (graph,) = compiled.context.graphs
    assert ([t.name for t in graph.inputs], [t.name for t in graph.outputs]) == (["x"], ["y"])
    assert compiled.peak_rss_bytes is None


@pytest.mark.lane("qnn")
@pytest.mark.parametrize(
    ("fault", "what", "found"),
    [
        ("unsupported", "qairt-converter ended with 1", "No translation registered for op 'Fancy'"),
        ("no-dlc", "qairt-converter ended with 0 and left no square.dlc", "INFO_CONVERSION_SUCCESS"),
        ("no-backend", "qnn-context-binary-generator ended with 1", "Unable to load backend"),
        ("other-soc", "the binary is for another SoC", "soc number 36, HTP v69"),
    ],
)
def test_what_a_tool_says_is_told_and_nothing_is_left(
    square: Path, sdk: Path, monkeypatch: pytest.MonkeyPatch, fault: str, what: str, found: str
) -> None:
    monkeypatch.setenv(_standin.FAULT, fault)
    with pytest.raises(CompileError) as error:
        compile_square(square, sdk)
    assert what in error.value.what
    assert found in str(error.value.found)
    assert not list((square.parent / "binaries").iterdir())


def test_a_python_that_is_not_there_is_named(square: Path, sdk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(sdk / "no-python"))
    with pytest.raises(HostError, match="qairt-converter does not start"):
        compile_square(square, sdk)
