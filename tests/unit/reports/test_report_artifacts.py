"""What an artifact needs of a phone, in its row of the report."""

from __future__ import annotations

import dataclasses

from harness.record.artifact import GraphSpec
from reports.artifacts import artifact_rows


def test_the_row_says_which_shares_of_the_htp_and_of_memory_are_needed(journals):
    """A binary of 2^30 bytes and next to nothing else: 1 of 3.5 GiB, 1 of 2, and of 8, 12 and 16."""
    manifest = journals.manifest()
    (first, *_) = manifest.contexts
    big = dataclasses.replace(manifest, contexts=(dataclasses.replace(first, n_bytes=1 << 30, graphs=()),))
    (row,) = artifact_rows([big])
    assert row.need == (
        "28.57 % of an HTP session, 50.00 % of a context, 12.50 % of 8 GiB, 8.33 % of 12 GiB, 6.25 % of 16 GiB of RAM"
    )


def test_the_row_says_where_pieces_run_and_why(journals):
    manifest = journals.manifest()
    step = GraphSpec(name="ar1", n_tokens=1, inputs=(), outputs=(), epcontext_nodes=1, cpu_nodes=0)
    htp = dataclasses.replace(manifest.contexts[0], graphs=(step,))
    cpu = dataclasses.replace(htp, on_cpu=("Softmax (layer1): not <today>",))
    (whole,) = artifact_rows([manifest])
    assert "CPU" not in whole.recipe
    (cut,) = artifact_rows([dataclasses.replace(manifest, contexts=(htp, cpu, htp))])
    assert cut.recipe.endswith("; HTP | CPU | HTP, for the HTP refuses Softmax (layer1): not <today>")


def test_an_artifact_without_binaries_has_no_figure(journals):
    (row,) = artifact_rows([dataclasses.replace(journals.manifest(), contexts=())])
    assert row.need == "not measured: no context binary"
