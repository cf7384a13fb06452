"""The pinned chat template of a spec: the base's own, or a file in Git, with its sha256."""

from pathlib import Path
from typing import Any

from hashtune.chat.failures import of_template
from hashtune.chat.rendering import names_read
from hashtune.chat.template import Template
from hashtune.errors import Finding, InputError, nearest
from hashtune.spec.schema import TokenizerSpec
from hashtune.writers import sha256_bytes

RESERVED = frozenset(
    {
        "conversation",
        "messages",
        "chat_template",
        "add_generation_prompt",
        "tokenize",
        "continue_final_message",
        "sanitize_control_tokens",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
        "date_string",
        "strftime_now",
    }
)


def load_template(tokenizer: Any, settings: TokenizerSpec, *, root: Path) -> Template:
    """The pinned template: the base's own ("base") or a file below `root`.

    Raises:
        InputError: it is absent, its sha256 is not the pinned one, its arguments are reserved or
            read nowhere in it, a stop is blank, or it cannot render a user message.
    """
    text = _source(tokenizer, settings.chat_template, root)
    found: list[Finding] = []
    actual = sha256_bytes(text.encode("utf-8"))
    if actual != settings.sha256:
        message = f"the template has sha256 {actual}, pinned is {settings.sha256}"
        fix = f"set tokenizer.sha256 to {actual} if you want this template"
        found.append(Finding("template-hash", message, field="tokenizer.sha256", fix=fix))
    for key in sorted(RESERVED & set(settings.template_kwargs)):
        where = f"tokenizer.template_kwargs.{key}"
        fix = "set tokenizer.date" if key in ("date_string", "strftime_now") else "remove it"
        found.append(Finding("template-kwargs", "is set by hashtune itself", field=where, fix=fix))
    found += [
        Finding("stops", "blank, so it ends no turn", field=f"tokenizer.stops[{index}]")
        for index, stop in enumerate(settings.stops)
        if not stop
    ]
    if found:
        raise InputError(found)
    template = Template(
        tokenizer,
        text,
        dict(settings.template_kwargs),
        settings.date,
        stored_header=settings.mismatch == "as_stored",
        escape=settings.special_in_content == "escape",
        merge_system=settings.system == "merge_into_user",
        name=settings.chat_template,
    )
    try:
        template.render([{"role": "user", "content": "hi"}], add_generation_prompt=True)
    except InputError as error:
        raise InputError([of_template(found, template.name) for found in error.findings]) from error
    if unread := _unread(text, settings):
        raise InputError(unread)
    return template


def _unread(text: str, settings: TokenizerSpec) -> list[Finding]:
    """A finding for each argument that the template cannot see: a slip of the pen, with which it
    would print something else than was asked for."""
    names = names_read(text)
    return [
        Finding(
            "template-kwargs",
            f"the template {settings.chat_template} reads no {key!r}",
            field=f"tokenizer.template_kwargs.{key}",
            fix=nearest(key, names - RESERVED),
        )
        for key in settings.template_kwargs
        if key not in names
    ]


def _source(tokenizer: Any, name: str, root: Path) -> str:
    field = "tokenizer.chat_template"
    if name == "base":
        text = tokenizer.chat_template
        if isinstance(text, dict):
            text = text.get("default")
        if not text:
            fix = "pin a template file in Git"
            raise InputError(
                Finding("no-template", "the base has no chat template", field=field, fix=fix)
            )
        return str(text)
    path = root / name
    if Path(name).is_absolute() or not path.resolve().is_relative_to(root.resolve()):
        raise InputError(Finding("template-path", f"{name!r} leaves the project", field=field))
    if not path.is_file():
        raise InputError(Finding("no-template", f"{name!r} is missing", field=field))
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(Finding("not-utf8", str(error), file=name, field=field)) from error
