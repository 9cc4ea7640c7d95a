"""The hub's own client against a hub of two files on this host."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.errors import CheckpointError
from harness.model.hf_config import model_name
from harness.model.hub import locate

pytest.importorskip("huggingface_hub", reason="needs the prepare extra")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"a": 1}',
    "model.safetensors": b"weights",
    "consolidated.safetensors": b"the same weights again",
    "original/params.json": b"{}",
    "pytorch_model.bin": b"pickle",
    "small.gguf": b"GGUF",
}


class Hub(BaseHTTPRequestHandler):
    asked: list[str]

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        body, status, tag = self.body()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{tag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def body(self) -> tuple[bytes, int, str]:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/owner/tiny/revision/"):
            names = [{"rfilename": name} for name in FILES]
            return json.dumps({"id": "owner/tiny", "sha": COMMIT, "siblings": names}).encode(), 200, "list"
        if path.startswith("/api/models/owner/tiny/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha256(data).hexdigest()[:40]}
                for name, data in FILES.items()
            ]
            return json.dumps(tree).encode(), 200, "tree"
        for revision in ("main", COMMIT):
            name = path.removeprefix(f"/owner/tiny/resolve/{revision}/")
            if name in FILES:
                return FILES[name], 200, hashlib.sha256(FILES[name]).hexdigest()[:40]
        return b"{}", 404, "none"

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def located(name: str, hub: str, home: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the client reads its settings once, when it is imported."""
    code = "import sys; from harness.model.hub import locate; print(locate(sys.argv[1]))"
    settings = {"HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, name],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_repository_is_fetched_without_the_files_that_are_not_read(hub: str, tmp_path: Path) -> None:
    result = located("owner/tiny", hub, tmp_path)
    assert result.returncode == 0, result.stderr
    folder = Path(result.stdout.strip())
    assert sorted(path.name for path in folder.rglob("*")) == ["config.json", "model.safetensors"]
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert model_name(folder) == "tiny"


def test_one_gguf_file_of_a_repository_is_fetched_alone(hub: str, tmp_path: Path) -> None:
    result = located("owner/tiny/small.gguf", hub, tmp_path)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).read_bytes() == b"GGUF"
    assert not [line for line in Hub.asked if "safetensors" in line]


def test_what_was_fetched_is_there_without_the_hub(hub: str, tmp_path: Path) -> None:
    first = located("owner/tiny", hub, tmp_path)
    again = located("owner/tiny", "http://127.0.0.1:9", tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout


def test_a_name_the_hub_does_not_know_is_refused(hub: str, tmp_path: Path) -> None:
    result = located("owner/other", hub, tmp_path)
    assert "checkpoint owner/other is neither a path here nor to be had from the hub" in result.stderr


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert locate("owner/tiny") == Path("owner/tiny")
    assert locate("owner/tony") == Path("owner/tony")
    assert locate("/nowhere/at/all") == Path("/nowhere/at/all")
    assert locate("nowhere") == Path("nowhere")


def test_a_missing_path_of_two_parts_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match=r"owner/none is neither a path here nor to be had from the hub"):
        locate("owner/none")
