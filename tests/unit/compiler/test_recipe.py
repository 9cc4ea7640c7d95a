from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.compiler.recipe import Plan, check_plan, choose_kv, kv8_cost, shard_cuts
from harness.errors import UserError
from harness.record.artifact import ModelFacts, PerplexityFigure
from harness.soc import KvPrecision, Precision, find_soc

FACTS = ModelFacts(
    name="some-model",
    architecture="LlamaForCausalLM",
    n_layers=1,
    hidden_size=4,
    intermediate_size=4,
    n_heads=1,
    n_kv_heads=1,
    head_dim=2,
    vocab_size=5,
    max_context=128,
    rope_theta=100.0,
    rms_norm_eps=1e-5,
    tied_embeddings=True,
    bos_id=0,
    eos_ids=(4,),
    n_parameters=0,
)


def plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "soc": find_soc("gen3"),
        "precision": Precision.W8A16,
        "kv": None,
        "context_length": 128,
        "prefill_tokens": 32,
        "rmsnorm": "operator",
        **changes,
    }
    return Plan(**values)


def figures(**perplexities: float) -> tuple[PerplexityFigure, ...]:
    return tuple(
        PerplexityFigure(engine="e", graph=graph, perplexity=value, n_windows=1, n_scored_tokens=255, corpus_sha256="c")
        for graph, value in perplexities.items()
    )


def llama_7b(**changes: Any) -> ModelFacts:
    return replace(
        FACTS,
        n_layers=32,
        hidden_size=4096,
        intermediate_size=11008,
        n_heads=32,
        n_kv_heads=32,
        head_dim=128,
        vocab_size=32000,
        max_context=4096,
        **changes,
    )


@pytest.mark.parametrize(
    ("precision", "contexts", "n_shards"),
    [("w8a16", "separate", 4), ("w8a16", "shared", 4), ("w8a16", "one", 8), ("w4a16-b32", "separate", 3)],
)
def test_a_model_of_7b_is_cut_so_that_each_context_holds_at_most_2_gib(
    precision: str, contexts: str, n_shards: int
) -> None:
    """Of w8a16 6.9 GB of weights, once or once a graph, and 0.5 GB of cache."""
    chosen = plan(precision=Precision(precision), kv=KvPrecision.KV8, context_length=2048, contexts=contexts)
    assert len(shard_cuts(chosen, llama_7b())) + 1 == n_shards


@pytest.mark.parametrize(
    ("precision", "contexts", "n_shards"),
    [("w8a16", "separate", 4), ("w8a16", "shared", 7), ("w4a16-b32", "separate", 4), ("w4a16-b32", "shared", 7)],
)
def test_prepared_layer_by_layer_no_shard_is_larger_than_the_host_can_compile(
    precision: str, contexts: str, n_shards: int
) -> None:
    """6.7 billion parameters, at most 2 a shard, or 1.1 where two graphs go into one binary."""
    facts = replace(llama_7b(), n_parameters=6_738_415_616)
    chosen = plan(precision=Precision(precision), kv=KvPrecision.KV8, context_length=2048, contexts=contexts)
    assert len(shard_cuts(chosen, facts)) + 1 == n_shards
    assert len(shard_cuts(replace(chosen, shards=2), facts)) + 1 == 2


def test_a_small_model_stays_whole_unless_asked() -> None:
    assert shard_cuts(plan(), FACTS) == ()
    assert shard_cuts(plan(shards=3), llama_7b()) != ()


def test_only_archs_with_signed_16_bit_products_choose_between_caches() -> None:
    assert plan().kv_candidates == (KvPrecision.KV16, KvPrecision.KV8)
    assert plan(soc=find_soc("gen1")).kv_candidates == (KvPrecision.KV8,)
    assert choose_kv(plan(soc=find_soc("gen1")), ())[0] is KvPrecision.KV8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context_length": 129}, "found: 129; expected: 2 to 128"),
        ({"context_length": 1}, "found: 1; expected: 2 to 128"),
        ({"prefill_tokens": 0}, "found: 0; expected: 1 to 127"),
        ({"prefill_tokens": 128}, "found: 128; expected: 1 to 127"),
        ({"rmsnorm": "fused"}, "unknown RMSNorm form; found: fused; expected: operator or basic"),
        ({"kv": KvPrecision.KVFP16}, "KV precision kvfp16 does not go with w8a16"),
        ({"precision": Precision.FP16, "kv": KvPrecision.KV8}, "KV precision kv8 does not go with fp16"),
        ({"precision": Precision.FP16, "soc": find_soc("gen1")}, "fp16 does not run on Snapdragon 8 Gen 1"),
        ({"precision": Precision.W4A16_B32, "soc": find_soc("sd888")}, "w4a16-b32 does not run on Snapdragon 888"),
        ({"precision": Precision.W8A8, "kv": KvPrecision.KV16}, "KV precision kv16 does not go with w8a8"),
        ({"kv": KvPrecision.KV16, "soc": find_soc("gen1")}, "kv16 does not run on Snapdragon 8 Gen 1; found: HTP v69"),
        ({"shards": 2}, "some-model cannot be cut into so many shards; found: 2; expected: 1 to 1, its layers"),
        ({"weights": "awq"}, "found: awq; expected: rtn or gptq"),
        ({"weights": "gptq"}, "gptq does not go with w8a16"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_before_any_work(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_plan(plan(**changes), FACTS)


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": Precision.W4A16, "weights": "gptq"},
        {},
        {"context_length": 2, "prefill_tokens": 1},
        {"prefill_tokens": 127},
        {"kv": KvPrecision.KV16},
    ],
)
def test_a_plan_that_works_is_taken(changes: dict[str, Any]) -> None:
    check_plan(plan(**changes), FACTS)


def test_a_prefill_of_one_token_needs_one_graph() -> None:
    assert plan(prefill_tokens=1).graph_sizes == (1,)
    assert plan(prefill_tokens=32).graph_sizes == (32, 1)


def test_kv8_is_chosen_up_to_a_tenth_of_a_percent_of_perplexity() -> None:
    assert choose_kv(plan(), figures(kv16=10.0, kv8=10.01))[0] is KvPrecision.KV8
    assert choose_kv(plan(), figures(kv16=10.0, kv8=10.011))[0] is KvPrecision.KV16


def test_the_reason_states_the_cost_and_the_limit() -> None:
    assert choose_kv(plan(), figures(kv16=10.0, kv8=10.02))[1] == (
        "kv8 costs +0.20% perplexity against kv16, the limit is +0.10%"
    )


def test_what_was_asked_for_is_built_and_its_cost_still_stated() -> None:
    chosen, reason = choose_kv(plan(kv=KvPrecision.KV8), figures(kv16=10.0, kv8=11.0))
    assert chosen is KvPrecision.KV8
    assert reason == "as asked; kv8 costs +10.00% perplexity against kv16"


def test_without_held_out_text_kv8_is_the_default_and_its_cost_unknown() -> None:
    chosen, reason = choose_kv(plan(), ())
    assert chosen is KvPrecision.KV8
    assert "not measured" in reason
    assert kv8_cost(figures(fp32=10.0, kv16=10.0)) is None


def test_fp16_has_one_kv_precision() -> None:
    assert choose_kv(plan(precision=Precision.FP16), ())[0] is KvPrecision.KVFP16


@pytest.mark.parametrize("others", [(32,), (64,), (8, 8), (1,)])
def test_further_prefill_sizes_are_smaller_than_the_first_and_different(others: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="the sizes of prefill steps are not usable"):
        check_plan(plan(other_prefill_tokens=others), FACTS)


def test_every_size_gets_a_graph_largest_first() -> None:
    assert plan(other_prefill_tokens=(8,)).graph_sizes == (32, 8, 1)
