"""Conversations become examples: exact masks, straddling, contents, policies."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hashtune.chat.examples import Tokenized
from hashtune.chat.labels import label, label_aligned, label_bytes, label_tokens
from hashtune.chat.pieces import byte_pieces
from hashtune.errors import Finding, InputError
from hashtune.records import Example

MERGES = (("Ċ", "Ċ"), ("o", "k"), ("Ġ", "ok"))


def refused(call: Callable[[], Any]) -> list[Finding]:
    with pytest.raises(InputError) as caught:
        call()
    assert {(f.file, f.line) for f in caught.value.findings} == {("triage", 3)}
    return caught.value.findings


def trained_text(template: Any, example: Example) -> str:
    ids = [label for label in example.labels if label != -100]
    return str(template.tokenizer.decode(ids))


def test_mask_of_the_smallest_chat(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    """<s> <|user|> h i <|end|> <|assistant|> y o <|end|>: the last three are trained."""
    template = make_template(sources["plain"])
    (example,) = tokenized(template, talk("hi", "yo")).examples
    assert (example.id, example.conversation_id, example.source) == ("c", "c", "triage")
    assert [label != -100 for label in example.labels] == [False] * 6 + [True] * 3
    assert example.labels[6:] == example.input_ids[6:]
    assert example.straddling == 0
    assert example.input_ids[:6] == template.prompt_ids(talk("hi"))


def test_words_without_a_lossless_decoder(
    make_template: Callable[..., Any],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["?", "user", "bot", "red", "fruit", "cherry"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<e>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?", eos_token="<e>")
    text = (
        "{% for m in messages %}{{ 'bot ' if m.role == 'assistant' else 'user ' }}"
        "{{ m.content + '<e> ' }}{% endfor %}{% if add_generation_prompt %}{{ 'bot ' }}{% endif %}"
    )
    template = make_template(text, tokenizer=tokenizer)
    (example,) = tokenized(template, talk("red fruit", "cherry red")).examples
    assert example.input_ids == [1, 3, 4, 6, 2, 5, 3, 6]
    assert example.labels == [-100, -100, -100, -100, -100, 5, 3, 6]
    found = refused(lambda: tokenized(template, talk("red fruit", "apple")))
    assert "the trained ids decode to '? <e>', the text is 'apple<e>'" in found[0].message


def test_header_that_merges_alone_but_not_before_text(
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Any],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    """The prompt ends in one token \\n\\n, the whole in two: comparing ids trains the header."""
    text = (
        "{% for m in messages %}{{ '<|' + m.role + '|>\n\n' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n\n' }}{% endif %}"
    )
    template = make_template(text, tokenizer=byte_tokenizer(merges=MERGES))
    (example,) = tokenized(template, talk("hi", "yo")).examples
    prompt = template.prompt_ids(talk("hi"))
    assert prompt != example.input_ids[: len(prompt)]
    assert trained_text(template, example) == "yo<|end|>"
    assert example.straddling == 0


def test_token_across_the_boundary_is_counted_and_not_trained(
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    merging = byte_tokenizer(merges=MERGES, split=False)
    template = make_template(sources["chatml"], tokenizer=merging)
    (example,) = tokenized(template, talk("hi", "\nyo", "more", "yo")).examples
    assert example.straddling == 1
    assert trained_text(template, example) == "yo<|end|>yo<|end|>"


@pytest.mark.parametrize("trim", [False, True])
def test_prompt_that_ends_in_a_blank(
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Any],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
    *,
    trim: bool,
) -> None:
    """The first word of the answer holds the blank of the prompt: not trained, and counted."""
    text = (
        "{% for m in messages %}{{ m.role + ': ' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    template = make_template(text, tokenizer=byte_tokenizer(merges=MERGES, trim=trim))
    (example,) = tokenized(template, talk("hi", "ok then")).examples
    assert trained_text(template, example) == " then<|end|>"
    assert example.straddling == 1
    (finding,) = refused(lambda: tokenized(template, talk("hi", "ok")))
    assert finding.message.startswith("no token of the answer is trained")


@pytest.mark.parametrize(
    ("pieces", "offsets", "spans", "expected", "straddlers"),
    [
        ("abc", [(0, 2), (2, 4), (4, 6)], [(2, 4)], [-100, 11, -100], ()),
        ("abc", [(0, 3), (3, 4), (4, 6)], [(2, 4)], [-100, 11, -100], (0,)),
        ("abc", [(0, 2), (2, 5), (5, 6)], [(2, 4)], [-100, -100, -100], ()),
        # offsets without the blank: the piece " b" holds it, "b" does not
        ("aĠc", [(0, 1), (3, 4), (4, 6)], [(3, 4)], [-100, -100, -100], (1,)),
        ("a▁c", [(0, 1), (2, 4), (4, 6)], [(1, 4)], [-100, 11, -100], ()),
        ("abc", [(0, 1), (3, 4), (4, 6)], [(3, 4)], [-100, 11, -100], ()),
        ("abc", [(0, 2), (2, 3), (2, 3)], [(2, 3)], [-100, 11, 12], ()),  # bytes of a character
        ("abc", [(0, 2), (2, 4), (4, 6)], [(0, 2), (4, 6)], [10, -100, 12], ()),
        ("abc", [(0, 2), (2, 2), (2, 4)], [(2, 4)], [-100, 11, 12], ()),
        # blanks whose offsets were trimmed to nothing, as the library gives them for "  c"
        ("ĠĠc", [(0, 0), (2, 2), (2, 3)], [(1, 3)], [-100, 11, 12], ()),
        ("ĠĠc", [(0, 0), (2, 2), (2, 3)], [(0, 1)], [10, -100, -100], ()),
    ],
)
def test_label_tokens(
    pieces: str,
    offsets: list[Any],
    spans: list[Any],
    expected: list[int],
    straddlers: tuple[int, ...],
) -> None:
    assert label_tokens([10, 11, 12], pieces, offsets, spans) == (expected, straddlers)


@given(
    lengths=st.lists(st.integers(0, 3), max_size=8),
    cuts=st.lists(st.integers(0, 12), max_size=6),
    gap=st.none() | st.integers(1, 8),
    repeats=st.lists(st.integers(1, 3), min_size=8, max_size=8),
)
def test_labels_at_once_are_those_of_the_token_by_token_definition(
    lengths: list[int], cuts: list[int], gap: int | None, repeats: list[int]
) -> None:
    ends = list(itertools.accumulate(lengths))
    offsets = [(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    if gap is not None and gap < len(offsets):
        offsets = [(a + (n >= gap), b + (n >= gap)) for n, (a, b) in enumerate(offsets)]
    offsets = [pair for pair, n in zip(offsets, repeats, strict=False) for _ in range(n)]
    edges = sorted(set(cuts))
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    ids = list(range(10, 10 + len(offsets)))
    at_once = label_aligned(ids, offsets, spans)
    assert at_once in (None, label_tokens(ids, "a" * len(ids), offsets, spans))
    assert at_once in (None, label_tokens(ids, "Ġ" * len(ids), offsets, spans))


def test_labels_at_once_where_every_span_ends_with_a_token() -> None:
    offsets = [(0, 2), (2, 4), (4, 6)]
    assert label_aligned([10, 11, 12], offsets, [(2, 4)]) == ([-100, 11, -100], ())
    assert label_aligned([10, 11, 12], offsets, [(3, 4)]) is None
    parts = [(0, 2), (2, 3), (2, 3)]  # two tokens are parts of one character
    assert label_aligned([10, 11, 12], parts, [(2, 3)]) == ([-100, 11, 12], ())


def test_labels_by_the_bytes_of_each_id() -> None:
    """Ids 0 to 5 stand for i, t, " ok", <|end|> and the first and the last bytes of é."""
    sizes = dict(enumerate([1, 1, 3, 7, 1, 1]))
    text, ids = "it ok<|end|>", [0, 1, 2, 3]
    assert label_bytes(ids, sizes, text, [(2, 12)]) == ([-100, -100, 2, 3], ())
    assert label_bytes(ids, sizes, text, [(0, 1), (2, 5)]) == ([0, -100, 2, -100], ())
    assert label_bytes(ids, sizes, text, [(3, 12)]) is None  # the blank is one token with ok
    assert label_bytes(ids, sizes, text, [(2, 11)]) is None
    assert label_bytes(ids, sizes, text, [(2, 13)]) is None
    assert label_bytes(ids, sizes, text[:-1], [(2, 5)]) is None  # not the ids of this text
    assert label_bytes([0, 4, 5, 1], sizes, "iét", [(1, 2)]) == ([-100, 4, 5, -100], ())
    assert label_bytes([0, 4, 5, 1], sizes, "iét", [(2, 3)]) == ([-100, -100, -100, 1], ())
    assert label_bytes([4, 5, 0, 4, 5], sizes, "éié", [(0, 1), (2, 3)]) == ([4, 5, -100, 4, 5], ())
    assert label_bytes([], sizes, "", []) == ([], ())


def test_labels_where_the_bytes_do_not_tell(byte_tokenizer: Callable[..., Any]) -> None:
    backend = byte_tokenizer(merges=MERGES).backend_tokenizer
    encoded = backend.encode("it ok<|end|>", add_special_tokens=False)
    assert label(encoded, encoded.ids, [(3, 12)]) == ([-100, -100, -100, encoded.ids[3]], (2,))
    smile = backend.encode("a🙂b", add_special_tokens=False)
    assert label(smile, smile.ids, [(1, 2)]) == ([-100, *smile.ids[1:5], -100], ())


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(st.sampled_from("ok \n<|end>é🙂"), min_size=1, max_size=30),
    cuts=st.sets(st.integers(0, 40), min_size=2, max_size=8),
    trim=st.booleans(),
)
def test_the_quick_ways_give_what_token_by_token_gives(
    byte_tokenizer: Callable[..., Any], text: str, cuts: set[int], trim: bool
) -> None:
    backend = byte_tokenizer(merges=MERGES, trim=trim).backend_tokenizer
    text += "<|end|>" + text
    encoded = backend.encode(text, add_special_tokens=False)
    places = sorted(min(cut, len(text)) for cut in cuts)
    spans = [(a, b) for a, b in zip(places[::2], places[1::2], strict=False) if a < b]
    exact = label_tokens(encoded.ids, encoded.tokens, encoded.offsets, spans)
    pieces = byte_pieces(backend)
    assert pieces is not None
    sizes = {token: len(piece) for token, piece in pieces.items()}
    assert label_bytes(encoded.ids, sizes, text, spans) in (None, exact)
    assert label(encoded, encoded.ids, spans) == exact


contents = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n ok<|end>é字🙂"), min_size=1
).filter(lambda text: text.strip() and not any(x in text for x in ("<|", "</s>", "think>")))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    pairs=st.lists(st.tuples(contents, contents), min_size=1, max_size=4),
    masked=st.sets(st.integers(0, 3)),
    split=st.booleans(),
)
def test_trained_ids_of_a_turn_decode_to_content_and_stop(
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Any],
    sources: dict[str, str],
    tokenized: Callable[..., Tokenized],
    *,
    pairs: list[tuple[str, str]],
    masked: set[int],
    split: bool,
) -> None:
    tokenizer = byte_tokenizer(merges=MERGES, split=split)
    template = make_template(sources["plain"], tokenizer=tokenizer)
    messages: list[Any] = []
    for number, (question, answer) in enumerate(pairs):
        reply = {"role": "assistant", "content": answer, "train": number not in masked}
        messages += [{"role": "user", "content": question}, reply]
    trained = [answer for number, (_, answer) in enumerate(pairs) if number not in masked]
    if not trained:
        found = refused(lambda: tokenized(template, messages))
        assert [finding.rule for finding in found] == ["nothing-to-learn"]
        return
    (example,) = tokenized(template, messages).examples
    assert trained_text(template, example) == "".join(f"{text}<|end|>" for text in trained)
    assert example.input_ids == template.encode(template.render(messages))


def test_one_example_per_turn(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    template = make_template(sources["thinker"])
    messages = talk("red?", "cherry", "green?", "lime")
    done = tokenized(template, messages, unstable="split")
    assert [example.id for example in done.examples] == ["c.1", "c.3"]
    assert [example.conversation_id for example in done.examples] == ["c", "c"]
    assert done.turns == 2
    first, second = done.examples
    assert first.input_ids == template.encode(template.render(messages[:2]))
    assert trained_text(template, second) == "<think>\n\n</think>\nlime<|end|>"
    assert second.input_ids[: len(template.prompt_ids(messages[:3]))] == template.prompt_ids(
        messages[:3]
    )


def test_prompted_and_appended_examples_are_proven_too(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    opener = make_template(sources["opener"])
    messages = talk("hi", "<think>add</think>4")
    (example,) = tokenized(opener, messages, mismatch="as_prompted").examples
    assert trained_text(opener, example) == "add</think>4<|end|>"
    assert example.input_ids == [
        *opener.prompt_ids(messages[:1]),
        *opener.encode("add</think>4<|end|>"),
    ]
    headers = make_template(sources["headers"])
    (example,) = tokenized(headers, talk("hi", "yo"), "<|user|>").examples
    assert trained_text(headers, example) == "yo<|user|>"


def test_arguments_as_text_and_object_give_the_same_ids(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    template, ids = make_template(sources["tools"]), []
    for arguments in ('{"city": "Oslo"}', {"city": "Oslo"}):
        call = {"function": {"name": "weather", "arguments": arguments}}
        messages = [*talk("hi"), {"role": "assistant", "content": None, "tool_calls": [call]}]
        (example,) = tokenized(template, messages).examples
        ids.append(example.input_ids)
        assert trained_text(template, example) == '<call>weather {"city": "Oslo"}</call><|end|>'
    assert ids[0] == ids[1]


def test_structure_is_refused_before_rendering(
    make_template: Callable[..., Any],
    sources: dict[str, str],
    talk: Callable[..., Any],
    tokenized: Callable[..., Tokenized],
) -> None:
    found = refused(lambda: tokenized(make_template(sources["plain"]), talk("hi", "yo", "and?")))
    assert [str(finding) for finding in found] == [
        "triage:3: messages[2]: nothing to learn after messages[1] [trailing]"
    ]
