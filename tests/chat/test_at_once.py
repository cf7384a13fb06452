"""Long conversations: all bodies at once, equal to the per-turn definition, at linear cost."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hashtune.chat import bodies as bodies_module
from hashtune.chat import second
from hashtune.chat.bodies import Layout, Unstable, layouts
from hashtune.chat.rendering import searched_texts
from hashtune.chat.template import Template
from hashtune.errors import InputError

# The fifth last answer and the ones after it keep their reasoning, older ones lose it.
FORGETFUL = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.revindex < 5 %}{{ '<think>\n\n</think>\n' }}{% endif %}"
    "{{ m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
# Answers that hold the word lose it once they are history.
CENSOR = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' }}"
    "{% if 'secret' in m.content and not loop.last %}{{ '...' }}{% else %}{{ m.content }}"
    "{% endif %}{{ '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
# A call is its name and an element an argument: without arguments the name comes last.
ELEMENTS = (
    "{% for m in messages %}{{ '<|start|>' + m.role + '\n' + m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '<f=' + c.function.name + '>' }}"
    "{% for k, v in c.function.arguments.items() %}{{ '<p=' ~ k ~ '>' ~ v ~ '</p>' }}{% endfor %}"
    "</f>{% endfor %}{{ '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def both(stops_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The layouts of a conversation as it is laid out, and by the per-turn definition alone."""

    def lay_out(
        template: Template,
        messages: list[Any],
        *declared: str,
        unstable: Unstable = "error",
        turns: list[int] | None = None,
    ) -> Any:
        stops = stops_of(template, *declared)
        turns = turns or [k for k, m in enumerate(messages) if m["role"] == "assistant"]
        results: list[list[Layout] | list[str]] = []
        for few in (3, 10**6):
            with monkeypatch.context() as patch:
                patch.setattr(bodies_module, "FEW", few)
                try:
                    results.append(
                        layouts(
                            template,
                            messages,
                            stops,
                            turns=turns,
                            unstable=unstable,
                            mismatch="error",
                        )
                    )
                except InputError as error:
                    results.append([str(finding) for finding in error.findings])
        return results

    return lay_out


words = st.sampled_from(
    ["hi", "yo", " yes \n", "user", "<think>x</think>y", "</think><think>", "\n", "é🙂", "|end|"]
)
asides = st.sampled_from(["none", "call", "system"])


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    name=st.sampled_from(["chatml", "plain", "thinker", "opener", "headers", "tools"]),
    pairs=st.lists(
        st.tuples(words.filter(str.strip), words.filter(str.strip), asides),
        min_size=4,
        max_size=9,
    ),
    declared=st.booleans(),
    unstable=st.sampled_from(["error", "last"]),
)
def test_at_once_is_the_per_turn_definition(
    both: Callable[..., Any],
    make_template: Callable[..., Any],
    sources: dict[str, str],
    *,
    name: str,
    pairs: list[tuple[str, str, str]],
    declared: bool,
    unstable: Unstable,
) -> None:
    messages: list[Any] = []
    for question, answer, aside in pairs:
        messages.append({"role": "user", "content": question})
        if aside == "system":
            messages.insert(-1, {"role": "system", "content": "be brief"})
        reply: dict[str, Any] = {"role": "assistant", "content": answer}
        messages.append(reply)
        if aside == "call":
            reply["tool_calls"] = [{"function": {"name": "now", "arguments": {"zone": answer}}}]
            messages += [{"role": "tool", "content": "noon"}, {"role": "assistant", "content": "x"}]
    stops = ["<|user|>", "<|tool|>", "<|system|>"] if declared else []
    at_once, one_by_one = both(make_template(sources[name]), messages, *stops, unstable=unstable)
    assert at_once == one_by_one


@pytest.mark.parametrize("text", [FORGETFUL, CENSOR])
def test_a_template_that_changes_older_answers_is_seen(
    both: Callable[..., Any], make_template: Callable[..., Any], talk: Callable[..., Any], text: str
) -> None:
    messages = talk(*["hi", "yo"] * 12)
    messages[9]["content"] = "the secret"
    at_once, one_by_one = both(make_template(text), messages)
    assert at_once == one_by_one
    assert "inference sees" in at_once[0]


def renders(
    template: Any, run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """How many renders, and of how many messages in all."""
    sizes: list[int] = []
    apply = Template._apply

    def counted(self: Template, normal: list[Any], *, add_generation_prompt: bool) -> str:
        sizes.append(len(normal))
        return apply(self, normal, add_generation_prompt=add_generation_prompt)

    with monkeypatch.context() as patch:
        patch.setattr(Template, "_apply", counted)
        run()
    return len(sizes), sum(sizes)


def test_cost_is_linear_in_the_turns(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = {}
    for turns in (20, 40, 80):
        template = make_template(sources["chatml"])  # a new one, which keeps no tail yet
        messages = talk(*["hi", "yo"] * turns)
        counts[turns] = renders(template, partial(tokenized, template, messages), monkeypatch)
    assert counts[20][0] == counts[40][0] == counts[80][0] < 40
    assert counts[80][1] < 4.2 * counts[20][1]


def test_calls_without_arguments_are_laid_out_at_once(
    both: Callable[..., Any],
    make_template: Callable[..., Any],
    tokenized: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls with and without arguments by turns, 3 messages a round: few renders for any number."""

    def rounds(count: int) -> list[Any]:
        messages: list[Any] = []
        for number in range(count):
            given = {"zone": "x"} if number % 3 == 0 else {}
            call = {"function": {"name": "now", "arguments": given}}
            messages += [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": "noon"},
            ]
        return [*messages, {"role": "assistant", "content": "yo"}]

    counts = {}
    for number in (12, 48):
        template = make_template(ELEMENTS)
        run = partial(tokenized, template, rounds(number))
        counts[number] = renders(template, run, monkeypatch)[0]
        (example,) = run().examples
        said = template.tokenizer.decode([label for label in example.labels if label != -100])
        bare = "<f=now></f><|end|>"
        assert said == f"<f=now><p=zone>x</p></f><|end|>{bare}{bare}" * (number // 3) + "yo<|end|>"
    assert max(counts.values()) < 60
    at_once, one_by_one = both(make_template(ELEMENTS), rounds(12))
    assert at_once == one_by_one


def test_last_is_linear_where_a_template_is_unstable(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many renders for 20 turns as for 10, of twice the messages; split renders every turn."""
    counts: dict[Any, tuple[int, int]] = {}
    for unstable in ("last", "split"):
        for turns in (10, 20, 40):
            template = make_template(sources["thinker"])
            messages = talk(*["hi", "yo"] * turns)
            run = partial(tokenized, template, messages, unstable=unstable)
            assert len(run().examples) == (1 if unstable == "last" else turns)
            counts[unstable, turns] = renders(template, run, monkeypatch)
    assert counts["last", 10][0] == counts["last", 20][0] == counts["last", 40][0] < 60
    assert counts["last", 40][1] < 4.2 * counts["last", 10][1]
    assert counts["split", 20][0] >= counts["split", 10][0] + 2 * 10


def test_last_lists_the_findings_of_every_turn(
    both: Callable[..., Any],
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
) -> None:
    """Closed and opened again is open, which no feature tells: turns 9 and 13 are asked for it."""
    messages = talk(*["hi", "<think>x</think>yo"] * 12)
    messages[9]["content"] = messages[13]["content"] = "</think><think>"
    quick, one_by_one = both(make_template(sources["thinker"]), messages, unstable="last")
    assert quick == one_by_one
    assert [text.split(":")[0] for text in quick] == ["messages[9].content", "messages[13].content"]


def test_last_whose_own_answer_moves_is_refused(
    both: Callable[..., Any], make_template: Callable[..., Any], talk: Callable[..., Any]
) -> None:
    """The last trained turn is not the last message: the whole shows its answer otherwise."""
    messages = talk(*["hi", "yo"] * 12)
    messages[23]["train"] = False
    template = make_template(FORGETFUL.replace("loop.revindex < 5", "loop.last"))
    turns = [k for k, m in enumerate(messages) if m["role"] == "assistant" and k < 23]
    quick, one_by_one = both(template, messages, unstable="last", turns=turns)
    assert quick == one_by_one
    assert len(quick) == 11 and all("inference sees" in text for text in quick)


def test_without_the_few_prompts_every_prompt_is_rendered(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template, messages = make_template(sources["chatml"]), talk(*["hi", "yo"] * 6)
    wanted = tokenized(template, messages)
    monkeypatch.setattr(second, "ONE_BY_ONE", 100)
    monkeypatch.setattr(bodies_module, "FEW", 100)
    assert tokenized(template, messages) == wanted


def test_searched_texts() -> None:
    text = (
        "{% if '</think>' in m.content and m.role in ['user'] %}{{ m.content.split('</t>')[0] }}"
        "{{ m.content | replace('a', 'b') }}{% endif %}{{ 'printed' }}{{ m['key'].strip('\n') }}"
    )
    assert searched_texts(text) == {"</think>", "</t>", "a", "b"}
