"""Task sets on a phone and on the host: what is asked, and what of it was right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.model.decoder import Decoder
from harness.model.perplexity import tokenize
from harness.plugin.suite_runs import Size
from harness.record.artifact import Artifact
from harness.record.comparison import Leg, TaskScore
from harness.record.job import Prompt
from harness.record.run import Cell, RunRecord
from harness.record.vocabulary import Suite
from harness.run.workload import Workload
from harness.spec.tasks import Item, TaskSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An item in token ids: for multiple choice one prompt a choice, which is scored."""

    item: Item
    task: TaskSet
    prompt_ids: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]
    n_answer: tuple[int, ...]
    """Tokens of each choice; of the text to be generated"""
    wanted: tuple[int, ...]
    """Exact match: the tokens"""


def questions(tasks: Sequence[TaskSet], artifact: Artifact) -> tuple[Question, ...]:
    """Raises ``UserError`` for an item that does not fit the context."""
    bos = artifact.manifest.model.bos_id
    begin = () if bos is None else (bos,)
    file, context = artifact.path("tokenizer.json"), artifact.manifest.recipe.context_length
    found = []
    for number, task in enumerate(tasks):
        for index, item in enumerate(task.items):
            head = (*begin, *tokenize(file, item.prompt))
            answers = [tuple(tokenize(file, text)) for text in (item.choices or (item.text,))]
            longest = len(head) + max(len(answer) for answer in answers)
            if longest > context or not head or not all(answers):
                raise UserError(
                    f"task set {task.name}, item {item.item_id} cannot be asked of {artifact.manifest.name}",
                    found=f"{longest} tokens" if all(answers) else "an answer without a token",
                    expected=f"1 to {context}",
                    next_step="shorten the item, or leave it out",
                )
            choice = bool(item.choices)
            found.append(
                Question(
                    item=item,
                    task=task,
                    prompt_ids=tuple(f"task-{number}-{index}-{i}" for i in range(len(answers))),
                    tokens=tuple((*head, *answer) for answer in answers) if choice else (head,),
                    n_answer=tuple(len(answer) for answer in answers),
                    wanted=() if choice else answers[0],
                )
            )
    return tuple(found)


def tasks_workload(asked: Sequence[Question], size: Size) -> Workload:
    prompts = [
        Prompt(prompt_id=name, mode="generate", tokens=tokens, n_gen=n, ignore_eos=True)
        if q.wanted
        else Prompt(prompt_id=name, mode="score", tokens=tokens, n_gen=0)
        for q in asked
        for name, tokens, n in zip(q.prompt_ids, q.tokens, q.n_answer, strict=True)
    ]
    return Workload(name=str(Suite.TASKS), prompts=tuple(prompts), deadline_s=size.deadline_s, stall_s=120)


def host_scores(asked: Sequence[Question], decoder: Decoder, *, reference_id: str, cell: Cell) -> Iterator[TaskScore]:
    """The fp32 graph's answers."""

    def right(q: Question) -> bool:
        if q.wanted:
            said, _ = decoder.generate(q.tokens[0], len(q.wanted), ignore_eos=True)
            return tuple(said) == q.wanted
        return _chosen([decoder.window_nll(tokens) for tokens in q.tokens], q.n_answer) == q.item.right

    return _scores(asked, right, leg=Leg.FP32, run_id=None, reference_id=reference_id, cell=cell)


def phone_scores(asked: Sequence[Question], record: RunRecord, *, reference_id: str) -> Iterator[TaskScore]:
    """The phone's answers; an item that has no record is left out."""
    generations = {g.prompt_id: g for g in record.log.generations}
    answered = [q for q in asked if all(name in generations for name in q.prompt_ids)]

    def right(q: Question) -> bool:
        if q.wanted:
            return generations[q.prompt_ids[0]].token_ids == q.wanted
        return _chosen([np.asarray(generations[n].nll) for n in q.prompt_ids], q.n_answer) == q.item.right

    return _scores(answered, right, leg=Leg.PHONE, run_id=record.run_id, reference_id=reference_id, cell=record.cell)


def _chosen(nll: Sequence[NDArray[np.float64]], n_answer: Sequence[int]) -> int:
    """The choice whose tokens are likeliest together; of equal ones the first."""
    return int(np.argmin([values[-n:].sum() for values, n in zip(nll, n_answer, strict=True)]))


def _scores(
    asked: Sequence[Question],
    right: Callable[[Question], bool],
    *,
    leg: Leg,
    run_id: str | None,
    reference_id: str,
    cell: Cell,
) -> Iterator[TaskScore]:
    by_task: Mapping[str, list[Question]] = {q.task.sha256: [] for q in asked}
    for q in asked:
        by_task[q.task.sha256].append(q)
    for sha256, group in by_task.items():
        yield TaskScore(
            run_id=run_id,
            reference_id=reference_id,
            cell=cell,
            leg=leg,
            task=group[0].task.name,
            task_sha256=sha256,
            item_ids=tuple(q.item.item_id for q in group),
            correct=tuple(right(q) for q in group),
            chance=tuple(q.item.chance for q in group),
        )
