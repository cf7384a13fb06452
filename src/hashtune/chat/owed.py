"""Which answers of a conversation must be trained, told a second time.

From roles and masks of the row alone: a turn that the first derivation leaves out, or takes though
the row masks it, disagrees with this, whatever both make of the turns that they know of.
"""

from collections.abc import Sequence
from typing import Literal

from hashtune.errors import Finding
from hashtune.records import Message


def owed(messages: Sequence[Message], loss_on: Literal["assistant", "last_assistant"]) -> list[int]:
    """Indices of the answers that the row and `data.loss_on` ask for, ascending."""
    answers = [k for k in range(1, len(messages)) if messages[k]["role"] == "assistant"]
    if loss_on == "last_assistant":
        answers = [k for k in answers if k == answers[-1]]
    return [k for k in answers if _wanted(messages[k])]


def _wanted(message: Message) -> bool:
    return message.get("train") in (None, True) and message.get("weight") in (None, 1)


def turn_faults(
    messages: Sequence[Message],
    trained: Sequence[Sequence[int]],
    *,
    loss_on: Literal["assistant", "last_assistant"],
    unstable: Literal["error", "split", "last"],
) -> list[Finding]:
    """A finding where the examples of a row do not train each owed answer once; `trained` are the
    turns of each example. With unstable "last", one example may train the last of them alone."""
    wanted = owed(messages, loss_on)
    found = [turn for turns in trained for turn in turns]
    if found == wanted or (unstable == "last" and found == wanted[-1:]):
        return []
    said = f"trained are messages {found}, the row asks for {wanted}"
    return [Finding("proof", said, field="messages")]
