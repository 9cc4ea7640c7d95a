from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness.compiler.staging import publish, staging_folder
from harness.errors import HostError, UserError


def ignore(_: str) -> None:
    pass


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".prepare.lock"))


def test_a_published_folder_appears_whole_and_nothing_else(tmp_path: Path) -> None:
    with staging_folder(tmp_path, ignore) as folder:
        (folder / "a").write_text("new")
        publish(folder, tmp_path / "artifact")
    assert visible(tmp_path) == ["artifact"]
    assert (tmp_path / "artifact" / "a").read_text() == "new"


def test_publishing_replaces_an_older_folder_completely(tmp_path: Path) -> None:
    (tmp_path / "artifact").mkdir()
    (tmp_path / "artifact" / "stale").write_text("old")
    with staging_folder(tmp_path, ignore) as folder:
        (folder / "a").write_text("new")
        publish(folder, tmp_path / "artifact")
    assert visible(tmp_path) == ["artifact"]
    assert visible(tmp_path / "artifact") == ["a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_whatever_interrupts_the_work_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def work() -> None:
        with staging_folder(tmp_path, ignore) as folder:
            (folder / "half").write_text("half")
            raise error

    with pytest.raises(error):
        work()
    assert visible(tmp_path) == []


def test_a_full_disk_is_the_hosts_problem_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="No space left on device"), staging_folder(tmp_path, ignore):
        raise OSError(28, "No space left on device")
    assert visible(tmp_path) == []


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".preparing-dead").mkdir()
    with staging_folder(tmp_path, ignore):
        pass
    assert visible(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="file/out cannot be written"),
        staging_folder(tmp_path / "file" / "out", ignore),
    ):
        pass


def test_a_second_process_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    said, order = threading.Event(), []

    def second() -> None:
        with staging_folder(tmp_path, lambda _: said.set()):
            order.append("second")

    thread = threading.Thread(target=second)
    with staging_folder(tmp_path, ignore):
        thread.start()
        assert said.wait(timeout=30)
        order.append("first")
    thread.join(timeout=30)
    assert order == ["first", "second"]
