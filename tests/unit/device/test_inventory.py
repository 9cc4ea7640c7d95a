"""What a phone brings along for the HTP, out of any text that it may answer."""

from __future__ import annotations

import pytest

from harness.device.inventory import parse_inventory

ANSWER = """--snapgate boot
green
--snapgate dram

--snapgate dram_node
 00 00 00 08
--snapgate nodes
/dev/fastrpc-cdsp open
/dev/adsprpc-smd-secure closed
--snapgate libraries
/vendor/lib64/libcdsprpc.so
/vendor/lib64/libQnnHtp.so
--snapgate symbols
in /vendor/lib64/libcdsprpc.so
has rpcmem_to_fd
has rpcmem_alloc
has something_else
"""


def test_every_part_is_read() -> None:
    found = parse_inventory(ANSWER)
    assert (found.verified_boot, found.dram) == ("green", "LPDDR5")
    assert found.libraries == ("/vendor/lib64/libcdsprpc.so", "/vendor/lib64/libQnnHtp.so")
    assert (found.fastrpc_nodes, found.fastrpc_nodes_closed) == (("/dev/fastrpc-cdsp",), ("/dev/adsprpc-smd-secure",))
    assert (found.symbols, found.symbols_unavailable) == (("rpcmem_alloc", "rpcmem_to_fd"), None)


def test_line_ends_of_windows_change_nothing() -> None:
    assert parse_inventory(ANSWER.replace("\n", "\r\n")) == parse_inventory(ANSWER)


@pytest.mark.parametrize(
    ("node", "dram"), [("00 00 00 07", "LPDDR4X"), ("00 00 00 63", "device tree type 99"), ("zz", None), ("", None)]
)
def test_the_device_tree_tells_the_dram_as_far_as_it_is_known(node: str, dram: str | None) -> None:
    assert parse_inventory(f"--snapgate dram_node\n {node}\n").dram == dram


def test_a_name_that_the_vendor_gives_goes_before_the_device_tree() -> None:
    text = ANSWER.replace("--snapgate dram\n\n", "--snapgate dram\nSamsung,8GB,LPDDR5\n")
    assert parse_inventory(text).dram == "Samsung,8GB,LPDDR5"


@pytest.mark.parametrize("text", ["", "noise", "--snapgate symbols\n", "--snapgate nodes\n/etc/passwd open\n\x00\xff"])
def test_what_is_not_said_is_not_invented(text: str) -> None:
    found = parse_inventory(text)
    assert (found.verified_boot, found.dram, found.libraries, found.fastrpc_nodes) == (None, None, (), ())
    assert (found.symbols, found.symbols_unavailable) == ((), "the phone did not say")


def test_why_no_symbol_was_looked_for_is_said() -> None:
    found = parse_inventory("--snapgate symbols\nno libcdsprpc.so\nhas rpcmem_alloc\n")
    assert (found.symbols, found.symbols_unavailable) == ((), "no libcdsprpc.so")
