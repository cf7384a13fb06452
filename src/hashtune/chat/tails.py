"""The template's text after an answer, found once for conversations that it cannot tell apart.

Two renders a turn less. A tail is used again only where the answer's own render ends with it, and
every body that it leads to is derived a second time without it (second.py).
"""

from collections.abc import Sequence

from hashtune.chat.features import features_of
from hashtune.chat.sentinels import after_fields, calls_bare, common_suffix
from hashtune.chat.template import Template
from hashtune.records import Message

KEPT = 256  # kinds of conversations


def tail(template: Template, before: Sequence[Message], message: Message, full: str) -> str:
    """What after_fields gives for the message, which `full` renders last.

    Arguments written into a call that has none may bring text of their own (`</parameter>`): where
    `full` does not end like that, the call's name tells where its fields end; or, where the
    template prints this name in its own way, what the call and one with arguments end with.

    Raises:
        InputError: the template prints no field of the message.
    """
    known = template.tails
    key = tuple(features_of(template, [*before, message]))
    if key not in known or not full.endswith(known[key]):
        found = after_fields(template, before, message, following=None)
        if not full.endswith(found) and calls_bare(message):
            with_arguments = found
            found = after_fields(template, before, message, following=None, bare=True)
            by_name = found != with_arguments  # the name decides how the call is printed
            if by_name and not full.endswith(found):
                found = common_suffix(full, with_arguments)
        if len(known) == KEPT:
            known.clear()
        known[key] = found
    return known[key]
