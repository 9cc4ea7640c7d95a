"""The catalogue of models the suites know (``models/catalogue.toml``), and the cells it spans."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.record.codec import from_json
from harness.record.run import Cell
from harness.soc import KvPrecision, Precision, find_soc


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    precision: Precision
    kv: KvPrecision


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    folder: Path
    models: tuple[ModelSpec, ...]

    def cells(self) -> tuple[Cell, ...]:
        """Every model × variant × SoC, in the order of the file."""
        return tuple(
            Cell(model=model.name, precision=variant.precision, kv=variant.kv, part=find_soc(name).part)
            for model in self.models
            for variant in model.variant
            for name in model.socs
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


def load_catalogue(path: Path) -> Catalogue:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise UserError(f"{path} does not exist", next_step="pass --models FILE") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UserError(f"{path} is not TOML", found=str(exc)) from exc
    unknown = sorted(set(data) - {"model"})
    if unknown or not isinstance(data.get("model"), list):
        raise UserError(
            f"{path} is not a model catalogue", found=", ".join(data) or "nothing", expected="[[model]] tables"
        )
    models = tuple(
        from_json(entry, ModelSpec, name=f"{path}, model number {number}")
        for number, entry in enumerate(data["model"], 1)
    )
    for model in models:
        for name in model.socs:
            find_soc(name)
        if len(set(model.variant)) != len(model.variant):
            raise UserError(f"{path}: model {model.name} names a variant twice")
        if not 0 < model.prefill_tokens < model.context_length:
            raise UserError(
                f"{path}: model {model.name}: prefill_tokens out of range",
                found=str(model.prefill_tokens),
                expected=f"1 to {model.context_length - 1}",
            )
    if len({model.name for model in models}) != len(models):
        raise UserError(f"{path} names a model twice")
    return Catalogue(folder=path.parent.resolve(), models=models)
