"""The catalogue of models the suites know (``models/catalogue.toml``), and the cells it spans."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import UserError
from harness.record.codec import from_json
from harness.record.run import Cell
from harness.soc import KvPrecision, Precision, find_soc
from harness.spec.tasks import TaskSet, load_tasks

ALL: Final = "all"
"""In place of a precision"""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    precision: Precision
    kv: KvPrecision
    socs: tuple[str, ...] = ()
    """Of the model's, those that it runs on; empty: on all of them."""
    default: bool = True
    """False: it runs only when its precision is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model of the catalogue. ``checkpoint`` and ``heldout`` are relative to the catalogue's folder."""

    name: str
    checkpoint: str
    heldout: str
    context_length: int
    prefill_tokens: int
    socs: tuple[str, ...]
    perplexity_windows: int
    n_gen: int
    prompts: tuple[str, ...]
    variant: tuple[Variant, ...]
    tasks: tuple[str, ...] = ()
    """Task sets (``harness.spec.tasks``), relative to the catalogue's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    folder: Path
    models: tuple[ModelSpec, ...]

    def cells(self, precisions: Collection[str] = ()) -> tuple[Cell, ...]:
        """Every model × variant × SoC, in the order of the file: of these precisions, or ``all``; without any, of those
        that run by default. Raises ``UserError`` for a precision that no model has."""
        known = dict.fromkeys(str(variant.precision) for model in self.models for variant in model.variant)
        for name in precisions:
            if name != ALL and name not in known:
                raise UserError(
                    f"no model of the catalogue has precision {name}",
                    found=name,
                    expected=f"{ALL}, or one of {', '.join(known)}",
                    next_step="add a [[model.variant]] to models/catalogue.toml, or name another precision",
                )
        return tuple(
            Cell(model=model.name, precision=variant.precision, kv=variant.kv, part=find_soc(name).part)
            for model in self.models
            for variant in model.variant
            if (variant.precision in precisions or ALL in precisions if precisions else variant.default)
            for name in variant.socs or model.socs
        )

    def model(self, name: str) -> ModelSpec:
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(model.name for model in self.models)
        raise UserError(
            "unknown model", found=repr(name), expected=f"one of {known}", next_step="see models/catalogue.toml"
        )

    def checkpoint(self, model: ModelSpec) -> Path:
        return self.folder / model.checkpoint

    def heldout(self, model: ModelSpec) -> Path:
        return self.folder / model.heldout

    def tasks(self, model: ModelSpec) -> tuple[TaskSet, ...]:
        return tuple(load_tasks(self.folder / name) for name in model.tasks)


def load_catalogue(path: Path) -> Catalogue:
    """Raises ``UserError`` naming file and model for what is missing, unknown, or would leave nothing to measure."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise UserError(
            f"{path} cannot be read as TOML",
            found=str(exc) if not isinstance(exc, OSError) else exc.strerror,
            expected="a model catalogue such as models/catalogue.toml",
            next_step="correct the file, or name another one with --models",
        ) from exc
    entries = data.get("model")
    if set(data) != {"model"} or not isinstance(entries, list) or not entries:
        raise UserError(
            f"{path} is not a model catalogue",
            found=", ".join(data) if data and entries != [] else "no model",
            expected="[[model]] tables and nothing else, at least one",
            next_step="see models/catalogue.toml",
        )
    models = tuple(
        from_json(entry, ModelSpec, name=f"{path}, model number {number}") for number, entry in enumerate(entries, 1)
    )
    for model in models:
        _check(model, f"{path}: model {model.name!r}")
    _refuse_twins([model.name for model in models], f"{path}: model")
    return Catalogue(folder=path.parent.resolve(), models=models)


def _check(model: ModelSpec, where: str) -> None:
    if not _NAME.fullmatch(model.name):
        raise UserError(
            f"{where}: name cannot be a folder's name",
            found=repr(model.name),
            expected="letters, digits, '.', '_' and '-'",
            next_step="rename the model",
        )
    for key in ("socs", "prompts", "variant"):
        if not getattr(model, key):
            raise UserError(
                f"{where}: {key} is empty", found="nothing", expected="at least one", next_step=f"add one to {key}"
            )
    for key, highest in (
        ("prefill_tokens", model.context_length - 1),
        ("n_gen", model.context_length - 1),
        ("perplexity_windows", None),
    ):
        value = getattr(model, key)
        if value < 1 or (highest is not None and value > highest):
            raise UserError(
                f"{where}: {key} out of range",
                found=str(value),
                expected="at least 1" if highest is None else f"1 to {highest}",
                next_step=f"correct {key}",
            )
    for number, prompt in enumerate(model.prompts, 1):
        if not prompt.strip():
            raise UserError(
                f"{where}: prompt number {number} is blank",
                found=repr(prompt),
                expected="some text",
                next_step="write a prompt, or leave it out",
            )
    _refuse_twins([find_soc(name).part for name in model.socs], f"{where}: SoC")
    for variant in model.variant:
        foreign = [name for name in variant.socs if find_soc(name).part not in [find_soc(n).part for n in model.socs]]
        if foreign:
            raise UserError(
                f"{where}: variant {variant.precision} has an SoC that the model has not",
                found=foreign[0],
                expected=f"some of {', '.join(model.socs)}",
                next_step="add it to the model's socs, or leave it out of the variant's",
            )
    if not any(variant.default for variant in model.variant):
        raise UserError(
            f"{where}: no variant runs by default", expected="at least one", next_step="remove default = false"
        )
    _refuse_twins([f"{variant.precision} {variant.kv}" for variant in model.variant], f"{where}: variant")


def _refuse_twins(names: list[str], what: str) -> None:
    twins = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twins:
        raise UserError(
            f"{what} named twice", found=twins[0], expected="each one once", next_step="leave the second one out"
        )
