"""The pinned template: hash, path, arguments, date and refusals."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashtune.chat.pinned import load_template
from hashtune.chat.template import Template
from hashtune.errors import InputError
from hashtune.spec.schema import TokenizerSpec

USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "yo"}
PICKY = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}"
    "{% endif %}{{ '<|start|>' + m.content + '<|end|>' }}{% endfor %}"
)


def settings(text: str, **changes: Any) -> TokenizerSpec:
    values: dict[str, Any] = {
        "chat_template": "base",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "added_tokens": [],
        "template_kwargs": {},
        "date": "2024-07-26",
        "stops": [],
        "unstable": "error",
        "mismatch": "error",
        "special_in_content": "error",
        "system": "error",
    }
    return TokenizerSpec(**(values | changes))


@pytest.fixture
def tokenizer(byte_tokenizer: Callable[..., Any], sources: dict[str, str]) -> Any:
    made = byte_tokenizer()
    made.chat_template = sources["chatml"]
    return made


def test_base_template_renders_and_encodes(
    tokenizer: Any, sources: dict[str, str], tmp_path: Path
) -> None:
    template = load_template(tokenizer, settings(sources["chatml"]), root=tmp_path)
    assert template.sha256 == settings(sources["chatml"]).sha256
    text = "<|start|>user\nhi<|end|>\n<|start|>assistant\n"
    assert template.prompt([USER]) == text
    ids = template.prompt_ids([USER])
    assert ids == template.encode(text)
    assert [type(token) for token in ids] == [int] * len(ids)
    assert len(ids) == len("user\nhi\nassistant\n") + 3  # one id a byte, three control tokens


def test_file_template(tokenizer: Any, tmp_path: Path) -> None:
    text = "{% for m in messages %}{{ m.content }}{% endfor %}"
    (tmp_path / "t.jinja").write_text(text, encoding="utf-8")
    spec = settings(text, chat_template="t.jinja")
    assert load_template(tokenizer, spec, root=tmp_path).render([USER, ANSWER]) == "hiyo"


def test_other_hash_names_both(tokenizer: Any, sources: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_template(tokenizer, settings(sources["chatml"], sha256="0" * 64), root=tmp_path)
    (finding,) = caught.value.findings
    actual = settings(sources["chatml"]).sha256
    assert finding.rule == "template-hash"
    assert actual in finding.message
    assert "0" * 64 in finding.message
    assert actual in str(finding.fix)


@pytest.mark.parametrize(
    ("name", "rule"),
    [("missing.jinja", "no-template"), ("../x", "template-path"), ("/etc/hosts", "template-path")],
)
def test_file_that_is_absent_or_outside(
    tokenizer: Any, tmp_path: Path, name: str, rule: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_template(tokenizer, settings("", chat_template=name), root=tmp_path)
    assert [finding.rule for finding in caught.value.findings] == [rule]


def test_link_out_of_the_project_is_refused(tokenizer: Any, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "t.jinja").write_text("x", encoding="utf-8")
    (root / "t.jinja").symlink_to(tmp_path / "t.jinja")
    with pytest.raises(InputError, match="leaves the project"):
        load_template(tokenizer, settings("x", chat_template="t.jinja"), root=root)


def test_base_without_template(byte_tokenizer: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no chat template"):
        load_template(byte_tokenizer(), settings(""), root=tmp_path)


def test_template_that_cannot_be_parsed(tokenizer: Any, tmp_path: Path) -> None:
    tokenizer.chat_template = "{% for %}"
    with pytest.raises(InputError, match="template-refuses"):
        load_template(tokenizer, settings("{% for %}"), root=tmp_path)


def test_reserved_arguments(tokenizer: Any, sources: dict[str, str], tmp_path: Path) -> None:
    spec = settings(sources["chatml"], template_kwargs={"tokenize": True, "date_string": "x"})
    with pytest.raises(InputError) as caught:
        load_template(tokenizer, spec, root=tmp_path)
    assert [finding.field for finding in caught.value.findings] == [
        "tokenizer.template_kwargs.date_string",
        "tokenizer.template_kwargs.tokenize",
    ]


def test_an_argument_that_the_template_does_not_read_is_refused(
    tokenizer: Any, sources: dict[str, str], tmp_path: Path
) -> None:
    """`enable_thinkng: false` would train what `enable_thinking: true` prints."""
    text = "{% if not quick is defined %}{% set quick = false %}{% endif %}{{ quick }}"
    text += sources["chatml"]
    tokenizer.chat_template = text
    assert load_template(tokenizer, settings(text, template_kwargs={"quick": 1}), root=tmp_path)
    spec = settings(text, template_kwargs={"quick": True, "quikc": True})
    with pytest.raises(InputError) as caught:
        load_template(tokenizer, spec, root=tmp_path)
    [finding] = caught.value.findings
    assert (finding.rule, finding.field) == ("template-kwargs", "tokenizer.template_kwargs.quikc")
    assert (finding.message, finding.fix) == (
        "the template base reads no 'quikc'",
        "did you mean 'quick'?",
    )


def test_a_blank_stop_is_refused(tokenizer: Any, sources: dict[str, str], tmp_path: Path) -> None:
    spec = settings(sources["chatml"], stops=["<|end|>", ""])
    with pytest.raises(InputError) as caught:
        load_template(tokenizer, spec, root=tmp_path)
    assert [f.field for f in caught.value.findings] == ["tokenizer.stops[1]"]


def test_date_is_pinned_not_read_from_the_clock(tokenizer: Any) -> None:
    text = (
        "{% macro today() %}{{ strftime_now('%d %b %Y') }}{% endmacro %}\n"
        "  {{ today() }}|{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('%A %-d %B') }}"
        "|{{ date_string }}|{{ strftime_now is defined }}"
    )
    template = Template(tokenizer, text, {}, "2024-07-06")
    expected = "  06 Jul 2024|2024-07-06|Saturday 6 July|06 Jul 2024|True"
    assert template.render([USER]) == expected


def test_the_macro_changes_nothing_else(tokenizer: Any) -> None:
    """Blanks at the start and blocks at a line start come out as without the macro."""
    body = "\n  {% if true %}\n a\n  {% endif %}\nb\n"
    bare = Template(tokenizer, body, {}, "2024-07-06").render([USER])
    dated = Template(tokenizer, body + "{{ strftime_now('%Y') }}", {}, "2024-07-06").render([USER])
    assert dated == bare + "\n2024"


def test_unknown_date_directive_is_refused(tokenizer: Any) -> None:
    with pytest.raises(InputError, match="no pinned value for %U"):
        Template(tokenizer, "{{ strftime_now('%U') }}", {}, "2024-07-06").render([USER])


@pytest.mark.parametrize(
    ("messages", "field", "words"),
    [
        (
            [{"role": "system", "content": "s"}, USER, ANSWER],
            "messages[0].role",
            "template does not accept role 'system' here (System role not supported)",
        ),
        ([USER, USER, ANSWER], "messages[1].role", "role 'user' follows 'user'"),
        ([ANSWER, USER, ANSWER], "messages[0].role", "first role is 'assistant'"),
    ],
)
def test_refusal_names_the_message(
    tokenizer: Any, messages: list[Any], field: str, words: str
) -> None:
    template = Template(tokenizer, PICKY, {}, "2024-07-26")
    with pytest.raises(InputError) as caught:
        template.render(messages)
    (finding,) = caught.value.findings
    assert finding.field == field
    assert finding.message.startswith(words)


def test_own_fields_and_nulls_never_reach_the_template(tokenizer: Any) -> None:
    text = "{% for m in messages %}{{ m | tojson(sort_keys=True) }}{% endfor %}"
    template = Template(tokenizer, text, {}, "2024-07-26")
    message = {"role": "assistant", "content": None, "train": False, "weight": 1}
    assert template.render([message]) == '{"content": "", "role": "assistant"}'


def test_stored_header_replaces_the_prompt_only_where_it_differs(
    make_template: Callable[..., Template], sources: dict[str, str]
) -> None:
    opened = "<|start|>user\nhi<|end|>\n<|start|>assistant\n<think>\n"
    bare = opened.removesuffix("<think>\n")
    assert make_template(sources["opener"]).prompt([USER]) == opened
    assert make_template(sources["opener"], stored=True).prompt([USER]) == bare
    assert make_template(sources["thinker"], stored=True).prompt([USER]) == bare


def test_a_render_that_differs_from_that_of_transformers_is_a_fault(
    tokenizer: Any, sources: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    template = Template(tokenizer, sources["chatml"], {}, "2024-07-26")
    template.render([USER])
    monkeypatch.setitem(template.__dict__, "_compiled", lambda *_, **__: "something else")
    with pytest.raises(AssertionError, match="renders this conversation otherwise"):
        template.render([USER])


def test_nothing_of_a_render_is_left_for_the_next(make_template: Callable[..., Any]) -> None:
    text = (
        "{% if messages|length > 1 %}{% set seen = messages[1].content %}{% endif %}"
        "{% macro said() %}{{ seen is defined }}{{ seen }}{% endmacro %}{{ said() }}"
    )
    template = make_template(text)
    assert template.render([USER, ANSWER]) == "Trueyo"
    assert template.render([USER]) == "False"


def test_own_fields_and_nulls_never_reach_a_template(make_template: Callable[..., Any]) -> None:
    template = make_template("{% for m in messages %}{{ m|tojson }}{% endfor %}")
    plain = '{"role": "user", "content": "hi"}'
    assert template.render([USER]) == plain
    for extra in ({"train": False}, {"weight": 0}, {"name": None}):
        assert template.render([{**USER, **extra}]) == plain
    assert template.render([{"role": "user", "content": None}]) == '{"role": "user", "content": ""}'


def test_an_encoding_is_that_of_transformers_without_truncation_or_padding(
    tokenizer: Any, sources: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    template = Template(tokenizer, sources["chatml"], {}, "2024-07-26")
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=9)
    assert template.encoding("abc").ids == template.ids("abc") == template.encode("abc")
    assert len(template.encode("abc")) == 3
    monkeypatch.setattr(Template, "encode", lambda self, text: [1])
    with pytest.raises(AssertionError, match="encodes this text otherwise"):
        template.encoding("abcd")
    with pytest.raises(AssertionError, match="encodes this text otherwise"):
        template.ids("abcd")
