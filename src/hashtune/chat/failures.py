"""What a template may raise while it renders data, and how that is said.

A template is code of somebody else: an error inside it is the row's or the template's, never ours.
Only its own call is guarded (rendering.py); memory and interrupts are not its affair.
"""

import dataclasses

import jinja2

from hashtune.errors import Finding

RENDER_ERRORS = (  # Jinja runs Python operators and methods of text, list and dict
    jinja2.TemplateError,  # raise_exception, undefined names, syntax, the sandbox's refusals
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,  # divisions by zero, ranges that the sandbox forbids
    RuntimeError,  # recursion
)


class RenderError(Exception):
    """The template raised an error; `cause` is what it raised."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(" ".join(str(cause).split()))

    def said(self, name: str, role: str, added_lines: int) -> str:
        """The error in words.

        Args:
            name: the template, as `tokenizer.chat_template` names it.
            role: why a template may refuse this message, in words.
            added_lines: lines before the template's own first line in the compiled text.
        """
        if isinstance(self.cause, jinja2.TemplateSyntaxError):
            line = self.cause.lineno - added_lines
            return f"the template {name} cannot be parsed, line {line}: {self}"
        if isinstance(self.cause, jinja2.TemplateError):
            return f"{role} ({self})"
        return f"the template {name} raises {type(self.cause).__name__}: {self}"


def of_template(finding: Finding, name: str) -> Finding:
    """A finding about messages that every template must render: no row is to blame, so it names the
    template and, where that is one, its file."""
    start = f"the template {name} "
    said = finding.message
    if not said.startswith(start):
        said = f"{start}takes no plain chat: {finding.field}: {said}"
    return dataclasses.replace(
        finding,
        message=said,
        file=None if name == "base" else name,
        field="tokenizer.chat_template",
        fix="correct the template, or pin another one",
    )
