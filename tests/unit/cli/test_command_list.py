"""The list of commands: each is there, says what it does, and loads only what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.cli.main import SUMMARIES, main


@pytest.mark.parametrize("name", SUMMARIES)
def test_each_command_of_the_list_has_options_and_says_what_it_does(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    shown = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0
    assert shown[0].startswith(f"usage: snapgate {name} ")
    description = shown[shown.index("") + 1]
    assert description[0].isupper()
    assert not description.startswith(("Options:", "Positional"))


def test_the_list_itself_loads_no_library_of_seconds() -> None:
    heavy = "{'numpy', 'pandas', 'scipy', 'onnx', 'onnxruntime', 'sqlalchemy', 'pytest'}"
    code = (
        "import sys; from harness.cli.main import build_parser; text = build_parser(None).format_help(); "
        f"print(sorted({heavy} & set(sys.modules)), text.count('gate'))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded, mentions = ran.stdout.rsplit(maxsplit=1)
    assert loaded == "[]"
    assert int(mentions) > 0
