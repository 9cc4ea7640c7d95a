from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import CheckpointError
from harness.model.chat import chat_family
from harness.model.checkpoint import load_checkpoint

pytest.importorskip("safetensors", reason="needs the prepare extra")

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
LLAMA3 = "<|start_header_id|>{{ role }}<|end_header_id|>{{ text }}<|eot_id|>"


def add_tokens(folder: Path, *texts: str) -> None:
    """Over the last words of the vocabulary of 64."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = {token: at for token, at in tokenizer["model"]["vocab"].items() if at < 64 - len(texts)}
    vocabulary |= {text: 64 - len(texts) + at for at, text in enumerate(texts)}
    tokenizer["model"]["vocab"] = vocabulary
    path.write_text(json.dumps(tokenizer))


def configure(folder: Path, **options: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(options))


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (CHATML, "chatml"),
        (LLAMA3, "llama3"),
        ("<|user|>\n{{ text }}{{ eos_token }}\n<|assistant|>", "zephyr"),
        ("<|user|>{{ text }}<|end|><|assistant|>", "phi3"),
        ("{{ bos_token }}[INST] {{ text }} [/INST]", "llama2"),
        ("<start_of_turn>user {{ text }}<end_of_turn>", "gemma"),
    ],
)
def test_a_template_is_known_by_its_markers(template: str, name: str) -> None:
    family = chat_family(template)
    assert family is not None
    assert family.name == name


def test_a_template_without_known_markers_has_no_family() -> None:
    assert chat_family("### Human: {{ text }}") is None


def test_a_template_that_fits_leaves_no_note_and_its_end_of_turn_stops(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint(architectures=["Qwen2ForCausalLM"])
    add_tokens(folder, "<|im_start|>", "<|im_end|>")
    configure(folder, chat_template=CHATML)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.notes == ()
    assert checkpoint.chat_template == CHATML
    assert checkpoint.facts.eos_ids == (2, 63)


def test_a_template_of_another_family_is_pointed_out(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint(architectures=["Qwen2ForCausalLM"])
    add_tokens(folder, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    configure(folder, chat_template=LLAMA3)
    (note,) = load_checkpoint(folder).notes
    assert note.startswith("the chat template is of the llama3 family, but models of Qwen2ForCausalLM are trained on")


def test_a_template_whose_markers_are_no_tokens_is_pointed_out(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    add_tokens(folder, "<|im_start|>")
    configure(folder, chat_template=CHATML)
    checkpoint = load_checkpoint(folder)
    (note,) = checkpoint.notes
    assert note.startswith("the chat template writes <|im_end|>, which the tokenizer does not know as one token")
    assert checkpoint.facts.eos_ids == (2,)


def test_a_template_in_a_file_of_its_own_wins_and_is_hashed(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    configure(folder, chat_template=CHATML)
    (folder / "chat_template.jinja").write_text("{{ text }}")
    checkpoint = load_checkpoint(folder)
    assert checkpoint.chat_template == "{{ text }}"
    assert {"chat_template.jinja", "tokenizer_config.json"} <= checkpoint.sha256.keys()


def test_of_named_templates_the_default_counts(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    entries = [{"name": "tool_use", "template": CHATML}, {"name": "default", "template": "{{ text }}"}]
    configure(folder, chat_template=entries)
    assert load_checkpoint(folder).chat_template == "{{ text }}"


def test_a_template_that_is_no_text_is_refused(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    configure(folder, chat_template=7)
    with pytest.raises(CheckpointError, match=r"chat_template cannot be used; found: 7"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("options", "bos_id"),
    [
        ({}, 1),
        ({"bos_token": "w1"}, 1),
        ({"bos_token": None}, None),
        ({"add_bos_token": False, "bos_token": "w1"}, None),
        ({"add_bos_token": True}, 1),
    ],
)
def test_the_begin_token_is_left_out_where_the_tokenizer_leaves_it_out(
    make_checkpoint: Callable[..., Path], options: dict[str, Any], bos_id: int | None
) -> None:
    folder = make_checkpoint()
    configure(folder, **options)
    assert load_checkpoint(folder).facts.bos_id == bos_id


def test_a_begin_token_that_only_the_tokenizer_names_is_taken(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint(bos_token_id=None)
    configure(folder, add_bos_token=True, bos_token={"content": "w5"})
    assert load_checkpoint(folder).facts.bos_id == 5


def test_two_begin_tokens_are_pointed_out(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    configure(folder, **{"bos_token": "w5"})
    checkpoint = load_checkpoint(folder)
    assert checkpoint.facts.bos_id == 1
    assert checkpoint.notes == ("tokenizer_config.json names w5 as begin token, id 5, but config.json says 1",)


def test_the_tokenizers_own_end_token_stops_too(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    configure(folder, eos_token={"content": "w9"})
    assert load_checkpoint(folder).facts.eos_ids == (2, 9)
