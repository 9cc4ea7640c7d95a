"""The layouts of qnn_abi.h against an SDK's headers: here against a header tree of our own, right and made wrong.

No genuine SDK is at hand where these tests are written; the tree declares what is known of QAIRT 2.43 and 2.51.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.lane("build")

WRONG = {
    "a tensor of the 2.13 generation": (
        "        Qnn_TensorV1_t v1;\n        Qnn_TensorV2_t v2;",
        "        Qnn_TensorV1_t v1, v2;\n#define Qnn_TensorV2_t Qnn_TensorV1_t",
        "Qnn_Tensor_t has another size",
    ),
    "a tensor member of 64 bits": (
        "uint32_t dataFormat;",
        "uint64_t dataFormat;",
        "Qnn_TensorV1_t.dataFormat has moved",
    ),
    "a slot less in the core table": ("backendSetConfig, ", "", "the slot of contextCreateFromBinary has moved"),
    "a slot more before graphExecute": (
        "graphExecute;",
        "graphNew, graphExecute;",
        "the slot of graphExecute has moved",
    ),
    "a table further on": (
        "Qnn_ApiVersion_t apiVersion;",
        "Qnn_ApiVersion_t apiVersion, later;",
        "QnnInterface_t.QNN_INTERFACE_VER_NAME has moved",
    ),
    "the SoC at a third place": (
        "    uint32_t aligned;",
        "    uint64_t aligned;",
        "socModel is at neither known place",
    ),
    "another value of an enumerator": (
        "QNN_DATATYPE_UFIXED_POINT_16 = 0x416",
        "QNN_DATATYPE_UFIXED_POINT_16 = 0x417",
        "QNN_DATATYPE_UFIXED_POINT_16 has another value",
    ),
    "a longer power vote": ("contextId, setDcvsEnable", "contextId, more, setDcvsEnable", "DcvsV3_t has another size"),
    "a graph description of the 1.1 generation": (
        "        QnnSystemContext_GraphInfoV3_t graphInfoV3;",
        "        QnnSystemContext_GraphInfoV2_t graphInfoV3;",
        "QnnSystemContext_GraphInfo_t has another size",
    ),
    "metadata moved in version 3": (
        "    uint32_t contextMetadataSize;\n    void* contextMetadata;",
        "    void* contextMetadata;\n    uint32_t contextMetadataSize;",
        "QnnSystemContext_BinaryInfoV3_t.contextMetadata has moved",
    ),
    "a DMA-buf of 32 bits": (
        "    int32_t fd;\n    uint64_t offset;",
        "    int32_t fd;\n    uint32_t offset;",
        "QnnMemHtp_Descriptor_t",
    ),
    "a core API that the runner refuses": (
        "#define QNN_API_VERSION_MINOR 40",
        "#define QNN_API_VERSION_MINOR 7",
        "core API is none that the runner accepts",
    ),
}


@pytest.fixture
def sdk(runner_sources: Path, tmp_path: Path) -> Path:
    shutil.copytree(runner_sources / "tests" / "sdk_headers", tmp_path / "sdk")
    return tmp_path / "sdk"


def compiled(runner_sources: Path, sdk: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            "g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *options,
            f"-I{runner_sources / 'src'}", "-isystem", sdk / "include" / "QNN",
            runner_sources / "sdk_check" / "layouts.cpp",
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_both_known_layouts_of_the_device_option_pass(runner_sources: Path, sdk: Path) -> None:
    for options in ([], ["-DOLD_DEVICE_CONFIG"]):
        done = compiled(runner_sources, sdk, *options)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", WRONG)
def test_a_layout_that_differs_does_not_compile_and_is_named(name: str, runner_sources: Path, sdk: Path) -> None:
    before, after, said = WRONG[name]
    path = sdk / "include" / "QNN" / "facts.h"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    done = compiled(runner_sources, sdk)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_build_compiles_them_where_an_sdk_is_named(runner_sources: Path, sdk: Path, tmp_path: Path) -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    cmake = scripts / "cmake" if (scripts / "cmake").exists() else Path("cmake")
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [cmake, *arguments], capture_output=True, text=True, env=environment, timeout=120, check=False
        )

    configure = ["-G", "Ninja", "-S", runner_sources, "-B", tmp_path / "build", "-DSNAPGATE_TESTS=OFF"]
    refused = run(*configure, f"-DQNN_SDK_ROOT={tmp_path}")
    assert refused.returncode != 0
    assert "has no include/QNN/QnnInterface.h" in " ".join(refused.stderr.split())
    assert run(*configure, f"-DQNN_SDK_ROOT={sdk}").returncode == 0
    build = ["--build", tmp_path / "build", "--target", "sdk_check"]
    done = run(*build)
    assert done.returncode == 0, done.stdout
    path = sdk / "include" / "QNN" / "facts.h"
    path.write_text(path.read_text().replace("graphExecute;", "graphNew, graphExecute;", 1))
    done = run(*build)
    assert done.returncode != 0
    assert "the slot of graphExecute has moved" in done.stdout
