"""The interface of an engine, and the way to the one that the spec names.

Base and adapter always answer through the same engine: it is one of the conditions that the gate
compares (evidence.py), since two engines differ in their last digits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hashtune.records import Message

if TYPE_CHECKING:
    from hashtune.chat.template import Template
    from hashtune.evaluation.choices import Question
    from hashtune.evaluation.generate import Answer, Progress
    from hashtune.evaluation.kept import Kept
    from hashtune.spec.schema import Spec
    from hashtune.store.manifest import Manifest


class Engine(Protocol):
    """A model that is ready to answer; `template` renders for it and holds its tokenizer."""

    @property
    def template(self) -> "Template":
        """Renders conversations to prompt ids."""

    def answers(
        self,
        conversations: Sequence[Sequence[Message]],
        *,
        max_new_tokens: int,
        batch_size: int,
        progress: "Progress",
        kept: "Kept | None" = None,
    ) -> "list[Answer]":
        """Greedy answers in input order; `batch_size` prompts at a time, longest first."""

    def likelihoods(
        self,
        questions: "Sequence[Question]",
        *,
        batch_size: int,
        progress: "Progress",
        kept: "Kept | None" = None,
    ) -> list[list[float]]:
        """Summed log-probability (nats) of each choice of each question, in input order."""


def open_engine(
    manifest: "Manifest", adapter: Path | None, spec: "Spec", *, root: Path
) -> "Engine":
    """The engine of `spec.evaluation` over the base, or over the base with an adapter.

    Args:
        manifest: of the base.
        adapter: its folder, or None for the base alone.
        spec: its sections evaluation, tokenizer and determinism.
        root: of the project, where template files lie.

    Raises:
        InputError: an engine that is not installed or cannot serve this adapter; as
            `models.open_subject`.
    """
    if spec.evaluation.engine == "vllm":
        from hashtune.evaluation.engines.vllm import open_vllm

        return open_vllm(manifest, adapter, spec, root=root)
    from hashtune.evaluation.engines.transformers import TransformersEngine
    from hashtune.evaluation.models import open_subject

    return TransformersEngine(
        open_subject(
            manifest,
            adapter,
            spec.tokenizer,
            dtype=spec.evaluation.base_precision,
            threads=spec.determinism.threads,
            root=root,
        )
    )
