"""The default engine: our own greedy loop over a transformers model, in this process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hashtune.evaluation.choices import Question, choice_scores
from hashtune.evaluation.generate import Answer, Progress, generate_answers
from hashtune.records import Message

if TYPE_CHECKING:
    from hashtune.chat.template import Template
    from hashtune.evaluation.kept import Kept
    from hashtune.evaluation.models import Subject


@dataclass(frozen=True, slots=True)
class TransformersEngine:
    """An Engine (see engines.base) over a loaded model."""

    subject: "Subject"

    @property
    def template(self) -> "Template":
        """Renders conversations to prompt ids."""
        return self.subject.template

    def answers(
        self,
        conversations: Sequence[Sequence[Message]],
        *,
        max_new_tokens: int,
        batch_size: int,
        progress: Progress,
        kept: "Kept | None" = None,
    ) -> list[Answer]:
        """As generate.generate_answers."""
        return generate_answers(
            self.subject.model,
            self.subject.template,
            conversations,
            stop_ids=self.subject.stop_ids,
            max_new_tokens=max_new_tokens,
            batch_size=batch_size,
            progress=progress,
            kept=kept,
        )

    def likelihoods(
        self,
        questions: Sequence[Question],
        *,
        batch_size: int,
        progress: Progress,
        kept: "Kept | None" = None,
    ) -> list[list[float]]:
        """As choices.choice_scores."""
        return choice_scores(
            self.subject.model,
            self.subject.template,
            questions,
            batch_size=batch_size,
            progress=progress,
            kept=kept,
        )
