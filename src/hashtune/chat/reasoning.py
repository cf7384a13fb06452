"""Reasoning blocks, as text: is one left open, and does an answer continue the prompt's block?"""

PAIRS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
)


def left_open(text: str) -> str | None:
    """The opening tag of a reasoning block that the text opens and does not close, or None."""
    for opening, closing in PAIRS:
        # `in` first: searching backwards costs much more, and most texts hold no tag
        if opening in text and text.rfind(opening) > text.rfind(closing):
            return opening
    return None


def continues(prompt: str, full: str) -> bool:
    """Whether inference can write `full` after `prompt`.

    Not when the prompt opens a block that `full` closes at once: the template's empty block
    (`<think>\\n` against `<think>\\n\\n</think>`) is no answer, and its tokens differ from the
    prompt's.
    """
    if not full.startswith(prompt):
        return False
    rest = full[len(prompt) :].lstrip()
    return not any(
        prompt.rstrip().endswith(opening) and rest.startswith(closing) for opening, closing in PAIRS
    )


def with_opening(text: str, start: int) -> str:
    """The text from `start`, and before it the opening tag that ends there, if one does."""
    before = text[:start].rstrip()
    tag = next((opening for opening, _ in PAIRS if before.endswith(opening)), "")
    return text[len(before) - len(tag) :] if tag else text[start:]


def without_opening(prompt: str, content: str) -> str:
    """The content without the opening tag that the prompt has already printed."""
    for opening, closing in PAIRS:
        if prompt.rstrip().endswith(opening) and content.lstrip().startswith(opening):
            rest = content.lstrip().removeprefix(opening)
            return rest.lstrip("\n") if closing in rest else content
    return content
