"""Begin and stop tokens and the chat template, from the tokenizer's files, and whether they fit the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import CheckpointError
from harness.model.architecture import Architecture
from harness.model.options import Options, read_optional

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
TEMPLATE_FILE: Final = "chat_template.jinja"

TextToId = Callable[[str], int | None]
"""The id of a text that is one token; None: it is cut into several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFamily:
    """A way to write a conversation, known by texts that its templates hold, all of them."""

    name: str
    markers: tuple[str, ...]
    one_token_each: bool
    """Whether models are trained with each marker as one token."""
    stop: str | None = None
    """The marker that ends the assistant's turn; None: the ordinary end token does."""


CHAT_FAMILIES: Final = (
    ChatFamily(name="chatml", markers=("<|im_start|>", "<|im_end|>"), one_token_each=True, stop="<|im_end|>"),
    ChatFamily(
        name="llama3",
        markers=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        one_token_each=True,
        stop="<|eot_id|>",
    ),
    ChatFamily(name="gemma", markers=("<start_of_turn>", "<end_of_turn>"), one_token_each=True, stop="<end_of_turn>"),
    ChatFamily(name="phi3", markers=("<|user|>", "<|assistant|>", "<|end|>"), one_token_each=True, stop="<|end|>"),
    ChatFamily(name="zephyr", markers=("<|user|>", "<|assistant|>"), one_token_each=False),
    ChatFamily(name="llama2", markers=("[INST]", "[/INST]"), one_token_each=False),
)
"""The first that matches counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    bos_id: int | None
    """What stands in front of every prompt; None: nothing does."""
    eos_ids: tuple[int, ...]
    chat_template: str | None
    notes: tuple[str, ...]
    """What does not fit, in sentences for the user."""


def chat_family(template: str) -> ChatFamily | None:
    return next((family for family in CHAT_FAMILIES if all(marker in template for marker in family.markers)), None)


def template_notes(template: str, architecture: Architecture, one_token: TextToId) -> tuple[str, ...]:
    """Why a chat template cannot be the one the model was trained on, as far as that shows."""
    family = chat_family(template)
    if family is None:
        return ()
    notes = []
    if architecture.chat_families and family.name not in architecture.chat_families:
        notes.append(
            f"the chat template is of the {family.name} family, but models of {architecture.name} are trained on "
            f"{' or '.join(architecture.chat_families)}: answers will be poor and may not stop"
        )
    cut = [marker for marker in family.markers if one_token(marker) is None] if family.one_token_each else []
    if cut:
        notes.append(
            f"the chat template writes {', '.join(cut)}, which the tokenizer does not know as one token: the model "
            f"was not trained on the {family.name} template"
        )
    return tuple(notes)


def stop_ids(given: Iterable[int | None], template: str | None, one_token: TextToId) -> tuple[int, ...]:
    """The given ids, each once, and the token that ends a turn of the chat template."""
    family = chat_family(template) if template is not None else None
    end_of_turn = one_token(family.stop) if family is not None and family.stop is not None else None
    return tuple(dict.fromkeys(token for token in (*given, end_of_turn) if token is not None))


def folder_tokenizer_facts(
    folder: Path, config: Options, generation: Options, architecture: Architecture, one_token: TextToId
) -> TokenizerFacts:
    """Of a Hugging Face folder.

    No begin token where tokenizer_config.json says ``add_bos_token`` false or ``bos_token`` null. Stop tokens:
    generation_config.json's, else config.json's; the tokenizer's own end token; the end of a turn of the chat template.
    """
    options = read_optional(folder / TOKENIZER_CONFIG)
    notes: list[str] = []
    bos = next(iter(config.token_ids("bos_token_id")), None)
    named = _token_text(options, "bos_token")
    named_id = one_token(named) if named is not None else None
    silent = not options.flag("add_bos_token", True) or ("bos_token" in options.values and named is None)
    if bos is None and options.flag("add_bos_token", False):
        bos = named_id
    if not silent and named_id is not None and named_id != bos:
        notes.append(f"{TOKENIZER_CONFIG} names {named} as begin token, id {named_id}, but config.json says {bos}")
    template = _template(folder, options)
    if template is not None:
        notes.extend(template_notes(template, architecture, one_token))
    given = generation.token_ids("eos_token_id") or config.token_ids("eos_token_id")
    end = _token_text(options, "eos_token")
    return TokenizerFacts(
        bos_id=None if silent else bos,
        eos_ids=stop_ids((*given, one_token(end) if end is not None else None), template, one_token),
        chat_template=template,
        notes=tuple(notes),
    )


def gguf_tokenizer_facts(
    metadata: Options, architecture: Architecture, one_token: TextToId, *, adds_bos: bool
) -> TokenizerFacts:
    """Of a GGUF file. Stop tokens: its end and end-of-turn tokens, and the end of a turn of its chat template."""
    bos = metadata.token_ids("tokenizer.ggml.bos_token_id")
    template = metadata.text("tokenizer.chat_template", "") or None
    given = metadata.token_ids("tokenizer.ggml.eos_token_id") + metadata.token_ids("tokenizer.ggml.eot_token_id")
    return TokenizerFacts(
        bos_id=bos[0] if bos and adds_bos else None,
        eos_ids=stop_ids(given, template, one_token),
        chat_template=template,
        notes=template_notes(template, architecture, one_token) if template is not None else (),
    )


def _token_text(options: Options, key: str) -> str | None:
    """A token as text, or as the object that transformers writes for added tokens."""
    value: Any = options.values.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise options.wrong(key, "a text")
    return value


def _template(folder: Path, options: Options) -> str | None:
    """A file of its own (transformers 5), or an entry of tokenizer_config.json: a text, or several with names."""
    path = folder / TEMPLATE_FILE
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise CheckpointError(f"{path} is damaged", found=str(exc), expected="UTF-8 text") from exc
    value = options.values.get("chat_template")
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    if value is not None and not isinstance(value, str):
        raise options.wrong("chat_template", "a text, or a list with a template named default")
    return value
