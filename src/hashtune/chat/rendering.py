"""Jinja as transformers sets it up, without transformers' work per call.

transformers copies and checks every message for each render, and Jinja its globals; both cost more
than the render itself.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jinja2 import Environment, nodes
from transformers.utils import chat_template_utils

from hashtune import spelling
from hashtune.chat.failures import RENDER_ERRORS, RenderError
from hashtune.records import Message

SEARCHES = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "find", "rfind"}
SEARCHES |= {"index", "rindex", "count", "replace", "strip", "lstrip", "rstrip", "removeprefix"}
SEARCHES |= {"removesuffix"}
CHANCE = ("random", "lipsum")  # filter and function of Jinja that draw from the global generator


def renderer(
    text: str, special_tokens: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Callable[[list[Message], bool], str]:
    """A function from messages (normal form) and add_generation_prompt to text.

    It gives what `apply_chat_template` gives for this template, these special tokens and arguments,
    but numbers in their own spelling (spelling.py).

    Raises:
        RenderError: the text is no template; or, when the function is called, it raised.
    """
    environment = _environment(text)
    compiled = environment.from_string(text)
    fixed = {**compiled.globals, "tools": None, "documents": None, **special_tokens}
    fixed |= chat_template_utils._plain_template_data(dict(arguments))
    context = environment.context_class(environment, {}, compiled.name, compiled.blocks)
    reasoning = frozenset(chat_template_utils._REASONING_FIELDS)

    def render(messages: list[Message], add_generation_prompt: bool) -> str:
        if not all(map(reasoning.isdisjoint, messages)):
            messages = chat_template_utils._alias_reasoning_fields(messages)
        names = fixed.copy()
        names["messages"], names["add_generation_prompt"] = messages, add_generation_prompt
        context.parent, context.vars, context.exported_vars = names, {}, set()
        try:
            return "".join(compiled.root_render_func(context))
        except RENDER_ERRORS as error:
            raise RenderError(error) from error

    return render


def _parsed(text: str) -> Any:
    """The compiled template in the environment of transformers, which is shared."""
    try:
        return chat_template_utils._compile_jinja_template(text)
    except RENDER_ERRORS as error:
        raise RenderError(error) from error


def drawn_names(text: str) -> list[str]:
    """The filters and functions in a template whose result is drawn anew in each render."""
    parsed = _parsed(text).environment.parse(text)
    filters = {applied.name for applied in parsed.find_all(nodes.Filter)}
    names = {name.name for name in parsed.find_all(nodes.Name) if name.ctx == "load"}
    return [name for name in CHANCE if name in (filters if name == "random" else names)]


def names_read(text: str) -> frozenset[str]:
    """The names that a template reads, those that it also sets among them."""
    parsed = _parsed(text).environment.parse(text)
    return frozenset(name.name for name in parsed.find_all(nodes.Name) if name.ctx == "load")


def _environment(text: str) -> Environment:
    """The environment of transformers with a `tojson` that keeps spellings."""
    environment: Environment = _parsed(text).environment.overlay()
    environment.filters = {**environment.filters, "tojson": _tojson}
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter of transformers, whose parameters templates name."""
    return spelling.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def constants(text: str, given: Any) -> frozenset[str]:
    """The texts that a template may print without computing them: those of its source (not its
    numbers, which are places in lists) and those inside `given`, its arguments."""
    parsed = _parsed(text).environment.parse(text)
    written = [node.value for node in parsed.find_all(nodes.Const)]
    written = [value for value in written if isinstance(value, str)]
    written += [node.data for node in parsed.find_all(nodes.TemplateData)]
    return frozenset([*written, *_leaves(given)])


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield str(value)


def searched_texts(text: str) -> frozenset[str]:
    """The constants that a template looks for in texts: `in`, and arguments of split and the like.

    A constant that is `in` a list of constants counts too; too many are no harm.
    """
    parsed = chat_template_utils._compile_jinja_template(text).environment.parse(text)
    found = [
        compare.expr
        for compare in parsed.find_all(nodes.Compare)
        if any(operand.op in ("in", "notin") for operand in compare.ops)
    ]
    for call in parsed.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in SEARCHES:
            found += call.args
    for applied in parsed.find_all(nodes.Filter):
        if applied.name in SEARCHES:
            found += applied.args
    constants = (node.value for node in found if isinstance(node, nodes.Const))
    return frozenset(value for value in constants if isinstance(value, str) and value.strip())
