"""An archive is somebody else's: nothing of it may land outside the folder, and nothing of it may fill the disk."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

from harness.errors import HostError
from harness.runtime.archive import ENTRIES_LIMIT, extract_libraries

NAME = "libQnnHtp.so"
INSIDE = f"jni/arm64-v8a/{NAME}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "inner" / "out"
    path.mkdir(parents=True)
    return path


def written(tmp_path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    path = tmp_path / "a.aar"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in entries:
            out.writestr(name, content)
    return path


def test_only_what_is_asked_for_is_unpacked_flat(tmp_path: Path, folder: Path) -> None:
    archive = written(tmp_path, (INSIDE, b"one"), ("jni/arm64-v8a/libOther.so", b"two"), ("jni/x86/libQnnHtp.so", b"3"))
    assert extract_libraries(archive, [NAME], folder) == {NAME: folder / NAME}
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [(NAME, b"one")]


@pytest.mark.parametrize(
    "name", ["../evil.so", "/etc/evil.so", "jni/../../evil.so", "jni\\..\\evil.so", "C:evil.so", "jni/arm64-v8a/../x"]
)
def test_a_path_out_of_the_archive_refuses_all_of_it(tmp_path: Path, folder: Path, name: str) -> None:
    archive = written(tmp_path, (INSIDE, b"good"), (name, b"evil"))
    with pytest.raises(HostError, match="is not taken"):
        extract_libraries(archive, [NAME], folder)
    assert not list(folder.iterdir())
    assert not list(tmp_path.rglob("evil*"))


def test_a_link_refuses_all_of_it(tmp_path: Path, folder: Path) -> None:
    link = zipfile.ZipInfo(INSIDE)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(HostError, match="a link or a device"):
        extract_libraries(written(tmp_path, (link, b"/etc/passwd")), [NAME], folder)
    assert not list(folder.iterdir())


def test_a_bomb_stops_at_the_limit_of_a_file_and_of_all(tmp_path: Path, folder: Path) -> None:
    archive = written(tmp_path, (INSIDE, bytes(5_000_000)), ("jni/arm64-v8a/b.so", bytes(3_000_000)))
    assert archive.stat().st_size < 20_000
    with pytest.raises(HostError, match="more than 4000000 bytes"):
        extract_libraries(archive, [NAME], folder, file_limit=4_000_000)
    assert (folder / NAME).stat().st_size <= 4_000_000
    (folder / NAME).unlink()
    with pytest.raises(HostError, match=r"'jni/arm64-v8a/b\.so' unpacks to more than 2000000 bytes"):
        extract_libraries(archive, [NAME, "b.so"], folder, total_limit=7_000_000)


def test_a_size_that_lies_is_not_believed(tmp_path: Path, folder: Path) -> None:
    archive = written(tmp_path, (INSIDE, bytes(range(256)) * 40))
    content = bytearray(archive.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 24  # the uncompressed size in the central directory
    content[at : at + 4] = (100).to_bytes(4, "little")
    archive.write_bytes(content)
    with pytest.raises(HostError, match="is damaged"):
        extract_libraries(archive, [NAME], folder)


def test_too_many_entries_the_same_twice_and_encrypted_ones_are_refused(tmp_path: Path, folder: Path) -> None:
    many = written(tmp_path, *((f"f{i}", b"") for i in range(ENTRIES_LIMIT + 1)))
    with pytest.raises(HostError, match=f"{ENTRIES_LIMIT + 1} entries"):
        extract_libraries(many, [NAME], folder)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = written(tmp_path, (INSIDE, b"1"), (INSIDE, b"2"))
    with pytest.raises(HostError, match="twice"):
        extract_libraries(twice, [NAME], folder)
    plain = written(tmp_path, (INSIDE, b"1"))
    content = bytearray(plain.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    plain.write_bytes(content)
    with pytest.raises(HostError, match="encrypted"):
        extract_libraries(plain, [NAME], folder)


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"PK\x05\x06" + bytes(10)])
def test_what_is_no_archive_is_damaged(tmp_path: Path, folder: Path, content: bytes) -> None:
    (tmp_path / "a.aar").write_bytes(content)
    with pytest.raises(HostError, match=r"a\.aar is damaged"):
        extract_libraries(tmp_path / "a.aar", [NAME], folder)


def test_every_cut_and_flipped_archive_is_refused_or_right(tmp_path: Path, folder: Path) -> None:
    content = written(tmp_path, (INSIDE, b"right " * 50)).read_bytes()
    damaged = tmp_path / "d.aar"
    for i in range(len(content)):
        for changed in (content[:i], content[:i] + bytes([content[i] ^ 0x55]) + content[i + 1 :]):
            damaged.write_bytes(changed)
            (folder / NAME).unlink(missing_ok=True)
            try:
                extract_libraries(damaged, [NAME], folder)
            except HostError:
                continue
            assert (folder / NAME).read_bytes() == b"right " * 50


def test_every_absent_library_is_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(HostError, match=r"no libA\.so, no libB\.so in jni/arm64-v8a"):
        extract_libraries(written(tmp_path, (INSIDE, b"1")), [NAME, "libA.so", "libB.so"], folder)
