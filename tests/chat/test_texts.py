"""Plain text: BOS where the tokenizer adds one, the text, EOS; loss on all; long ones in pieces.

Ids of the byte tokenizer: "a" is 64 ("!", 0x21, is 0), <s> is 256, </s> is 262, <think> is 263.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hashtune.chat.examples import Tokenized
from hashtune.chat.texts import prove_text, tokenize_text
from hashtune.errors import InputError
from hashtune.records import TEXT, Conversation, Example

BOS, END = 256, 262


def plain(text: str) -> Conversation:
    return Conversation("c", "notes", [{"role": TEXT, "content": text}], 3)


@pytest.fixture(scope="session")
def with_bos(byte_tokenizer: Callable[..., Any], make_template: Callable[..., Any]) -> Any:
    """A template (never rendered) whose tokenizer adds <s> before every text."""
    from tokenizers import processors

    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", BOS)]
    )
    return make_template("no template", tokenizer=tokenizer)


@pytest.fixture(scope="session")
def bare(make_template: Callable[..., Any]) -> Any:
    """A template (never rendered) whose tokenizer adds nothing."""
    return make_template("no template")


def refused(template: Any, text: str) -> list[tuple[Any, ...]]:
    with pytest.raises(InputError) as caught:
        tokenize_text(plain(text), template, cut=None)
    return [(f.rule, f.file, f.line, f.field) for f in caught.value.findings]


def test_the_whole_text_is_trained_and_no_template_is_applied(bare: Any, with_bos: Any) -> None:
    """Nothing precedes the first token of a document, so nothing predicts it: label -100."""
    done = tokenize_text(plain("hi"), bare, cut=None)
    example = Example("c", "c", "notes", [71, 72, END], [-100, 72, END])
    assert done == Tokenized([example], 1, [], text=True)
    (example,) = tokenize_text(plain("hi"), with_bos, cut=None).examples
    assert example.input_ids == [BOS, 71, 72, END]
    assert example.labels == [-100, 71, 72, END]


def test_an_end_that_the_tokenizer_adds_is_not_added_twice(
    byte_tokenizer: Callable[..., Any], make_template: Callable[..., Any]
) -> None:
    from tokenizers import processors

    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", BOS), ("</s>", END)]
    )
    template = make_template("no template", tokenizer=tokenizer)
    (example,) = tokenize_text(plain("hi"), template, cut=None).examples
    assert example.input_ids == [BOS, 71, 72, END]


def test_a_long_text_is_cut_into_pieces_that_train_every_token_once(bare: Any) -> None:
    """a b c d e f </s>: a piece begins with the last token of the one before, as context."""
    examples = tokenize_text(plain("abcdef"), bare, cut=3).examples
    assert [example.id for example in examples] == ["c.1", "c.2", "c.3"]
    assert {example.conversation_id for example in examples} == {"c"}
    assert [example.input_ids for example in examples] == [
        [64, 65, 66],
        [66, 67, 68],
        [68, 69, END],
    ]
    assert [example.labels for example in examples] == [
        [-100, 65, 66],
        [-100, 67, 68],
        [-100, 69, END],
    ]


def test_a_text_that_fits_is_not_cut(bare: Any) -> None:
    done = tokenize_text(plain("abcdef"), bare, cut=7)
    assert [(e.id, len(e.input_ids)) for e in done.examples] == [("c", 7)]
    assert done.turns == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(min_size=1, max_size=40).filter(lambda t: "<" not in t), cut=st.integers(2, 9))
def test_pieces_train_what_the_whole_trains(with_bos: Any, text: str, cut: int) -> None:
    (whole,) = tokenize_text(plain(text), with_bos, cut=None).examples
    done = tokenize_text(plain(text), with_bos, cut=cut)
    labels = [label for example in done.examples for label in example.labels[1:]]
    assert labels == whole.input_ids[1:]
    assert all(2 <= len(example.input_ids) <= cut for example in done.examples)
    assert done.turns == len(done.examples)
    assert with_bos.tokenizer.decode(labels[:-1]) == text


def test_control_tokens_are_refused_and_ordinary_added_tokens_are_text(bare: Any) -> None:
    assert refused(bare, "a<|end|>b</s>") == [("control-token", "notes", 3, "text")] * 2
    (example,) = tokenize_text(plain("a<think>"), bare, cut=None).examples
    assert example.input_ids == [64, 263, END]


def test_a_tokenizer_without_an_end_is_refused(
    byte_tokenizer: Callable[..., Any], make_template: Callable[..., Any]
) -> None:
    template = make_template("no template", tokenizer=byte_tokenizer(eos=None))
    assert refused(template, "hi") == [("no-eos", "notes", 3, "tokenizer")]


def test_a_tokenizer_that_loses_the_text_is_seen(make_template: Callable[..., Any]) -> None:
    """Words: "tree" is not in the vocabulary, so its id reads "?"; two blanks read as one."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: index for index, word in enumerate(["?", "red", "fruit"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<e>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?", eos_token="<e>")
    template = make_template("no template", tokenizer=tokenizer)
    assert tokenize_text(plain("red  fruit"), template, cut=None).altered == ["text"]
    assert tokenize_text(plain("red fruit"), template, cut=None).altered == []
    assert refused(template, "red tree") == [("proof", "notes", 3, "text")]


@pytest.mark.parametrize(
    ("ids", "labels", "said"),
    [
        ([BOS, 71, 72], [-100, 71, 72], "does not end with EOS ('</s>')"),
        ([71, 72, END], [-100, 72, END], "does not begin with BOS ('<s>')"),
        ([BOS, BOS, 71, 72, END], [-100, BOS, 71, 72, END], "begins with BOS ('<s>') twice"),
        ([BOS, 71, 73, END], [-100, 71, 73, END], "the ids read 'hj', the text is 'hi'"),
        ([BOS, 71, 72, END], [-100, 71, -100, END], "label 2 is -100, its id is 72"),
        ([BOS, 71, 72, END], [-100, 71, 73, END], "label 2 is 73, its id is 72"),
        ([BOS, 71, 72, END], [-100, 71, 72], "3 labels for 4 ids"),
        ([BOS, 71, 72, END], [BOS, 71, 72, END], "label 0 is 256, nothing predicts it"),
    ],
)
def test_each_planted_fault_is_caught(
    with_bos: Any, ids: list[int], labels: list[int], said: str
) -> None:
    example = Example("c", "c", "notes", ids, labels)
    assert said in [finding.message for finding in prove_text(with_bos, "hi", [example])]
    good = Example("c", "c", "notes", [BOS, 71, 72, END], [-100, 71, 72, END])
    assert prove_text(with_bos, "hi", [good]) == []


def test_a_merge_that_the_tokenizer_would_not_make_is_caught(
    byte_tokenizer: Callable[..., Any], make_template: Callable[..., Any]
) -> None:
    """ "ok" is one token (256 here), written as two: it reads the same, it is not trained so."""
    template = make_template("none", tokenizer=byte_tokenizer(merges=(("o", "k"),)))
    end = template.tokenizer.eos_token_id
    example = Example("c", "c", "notes", [78, 74, end], [-100, 74, end])
    said = [finding.message for finding in prove_text(template, "ok", [example])]
    assert said == ["the ids differ from the tokenizer's own at token 0"]


def test_a_lost_piece_is_caught(bare: Any) -> None:
    pieces = tokenize_text(plain("abcdef"), bare, cut=3).examples
    assert prove_text(bare, "abcdef", pieces) == []
    said = [f.message for f in prove_text(bare, "abcdef", [pieces[0], pieces[2]])]
    assert "piece 2 begins with 68, the one before it ends with 66" in said
    shifted = replace(pieces[1], input_ids=[65, 67, 68], labels=[-100, 67, 68])
    said = [f.message for f in prove_text(bare, "abcdef", [pieces[0], shifted, pieces[2]])]
    assert said == ["piece 2 begins with 65, the one before it ends with 66"]
