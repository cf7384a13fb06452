"""Control tokens that take the blanks beside them, as Phi-3's; stops in tokenizers of words."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from hashtune.chat.proof import prove
from hashtune.chat.stops import stop_sequences
from hashtune.chat.template import Template
from hashtune.errors import Finding, InputError
from hashtune.records import Example

PHI = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
HEADERS = ("<|user|>", "<|assistant|>", "<|end|>")


def stripping(byte_tokenizer: Callable[..., Any], *, trim: bool = False, **sides: bool) -> Any:
    """A byte tokenizer whose headers and stop take blanks: `rstrip`, `lstrip`."""
    from tokenizers import AddedToken

    tokenizer = byte_tokenizer(special=["<s>", "</s>"], trim=trim)
    tokens = [AddedToken(text, normalized=False, **sides) for text in HEADERS]
    tokenizer.backend_tokenizer.add_special_tokens(tokens)
    return tokenizer


def one(done: Any) -> Example:
    (example,) = done.examples
    assert isinstance(example, Example)
    return example


@pytest.fixture(params=[False, True], ids=["whole offsets", "trimmed offsets"])
def phi(
    request: pytest.FixtureRequest,
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Template],
) -> Template:
    tokenizer = stripping(byte_tokenizer, rstrip=True, trim=request.param)
    return make_template(PHI, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("answer", "letters"), [("yo", "yo"), ("  yo", "yo"), ("\n\nyo \n", "yo \n"), ("é", "é")]
)
def test_the_stop_is_trained_though_it_takes_the_newline_behind_it(
    phi: Template,
    talk: Callable[..., Any],
    tokenized: Callable[..., Any],
    answer: str,
    letters: str,
) -> None:
    """The header takes the newline behind it and the blanks that begin an answer."""
    tokenizer = phi.tokenizer
    user, assistant, end = tokenizer.convert_tokens_to_ids(list(HEADERS))
    own = tokenizer(letters, add_special_tokens=False)["input_ids"]
    hi = tokenizer("hi", add_special_tokens=False)["input_ids"]
    example = one(tokenized(phi, talk("hi", answer, "hi", "yo")))
    yo = tokenizer("yo", add_special_tokens=False)["input_ids"]
    want = [(user, *hi, end, assistant), (*own, end), (user, *hi, end, assistant), (*yo, end)]
    assert example.input_ids == [token for part in want for token in part]
    assert example.labels == [
        token if number % 2 else -100 for number, part in enumerate(want) for token in part
    ]
    assert phi.prompt_ids(talk("hi")) == list(want[0])


def test_a_token_that_takes_blanks_before_it(
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Template],
    talk: Callable[..., Any],
    tokenized: Callable[..., Any],
) -> None:
    tokenizer = stripping(byte_tokenizer, lstrip=True)
    template = make_template(PHI, tokenizer=tokenizer)
    example = one(tokenized(template, talk("hi", "yo  ")))
    trained = [label for label in example.labels if label != -100]
    assert tokenizer.decode(trained) == "yo<|end|>"


def planted(example: Example, place: int) -> Example:
    """The label at a place switched off, or on."""
    labels = list(example.labels)
    labels[place] = example.input_ids[place] if labels[place] == -100 else -100
    return dataclasses.replace(example, labels=labels)


def test_planted_labels_of_such_tokens_are_found(
    byte_tokenizer: Callable[..., Any],
    make_template: Callable[..., Template],
    talk: Callable[..., Any],
    tokenized: Callable[..., Any],
) -> None:
    template = make_template(PHI, tokenizer=stripping(byte_tokenizer, rstrip=True))
    messages = talk("hi", "  yo", "hi", "yo")
    example = one(tokenized(template, messages))
    stops = stop_sequences(template, eos_ids=[], declared=[])
    for place in range(len(example.labels)):
        bad = planted(example, place)
        assert prove(template, messages, bad, turns=[1, 3], stops=stops), place
    assert prove(template, messages, example, turns=[1, 3], stops=stops) == []


def words_tokenizer() -> Any:
    """As SentencePiece: ▁ for blanks, one before every text; single letters."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = ["<unk>", *"▁\n#:abcdefghijklmnopqrstuvwxyz", "\n\n", "##"]
    vocabulary = {letter: index for index, letter in enumerate(letters)}
    merges = [("\n", "\n"), ("#", "#")]
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    backend.add_special_tokens([AddedToken("</s>", normalized=False)])
    backend.add_special_tokens([AddedToken("<end▁of▁turn>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


ALPACA = (
    "{% for m in messages %}{{ '##' + m.role + ':\n' + m.content + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '##assistant:\n' }}{% endif %}"
)


def test_the_ids_of_a_stop_are_those_behind_an_answer(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> None:
    """Alone the text has a blank before it, which no answer ends with."""
    template = make_template(ALPACA, tokenizer=words_tokenizer())
    name = template.tokenizer.convert_ids_to_tokens
    alone = template.encode("\n\n##")
    assert name(alone) == ["▁", "\n\n", "##"]
    stops = stop_sequences(template, eos_ids=[], declared=["\n\n##"])
    assert [name(list(ids)) for ids in stops.ids] == [["\n\n", "##"], ["</s>"]]
    example = one(tokenized(template, talk("hi", "yo", "hi", "yo"), "\n\n##"))
    trained = name([label for label in example.labels if label != -100])
    assert trained == ["y", "o", "\n\n", "##"] * 2


def test_a_stop_that_merges_with_the_answer_is_refused_by_name(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> None:
    template = make_template(ALPACA, tokenizer=words_tokenizer())
    with pytest.raises(InputError) as caught:
        tokenized(template, talk("hi", "yo\n"), "\n\n##")
    (finding,) = caught.value.findings
    assert isinstance(finding, Finding)
    assert (finding.rule, finding.field) == ("stop-merged", "messages[1].content")
    assert "the tokens of '\\n\\n##' merge with the end of the answer" in finding.message


def test_a_control_token_with_the_blank_of_such_a_tokenizer(
    make_template: Callable[..., Template], talk: Callable[..., Any], tokenized: Callable[..., Any]
) -> None:
    """Its decoder reads the ▁ of DeepSeek's `<｜end▁of▁sentence｜>` as a blank."""
    text = ALPACA.replace("'\n\n'", "'<end▁of▁turn>'")
    template = make_template(text, tokenizer=words_tokenizer())
    example = one(tokenized(template, talk("hi", "yo")))
    name = template.tokenizer.convert_ids_to_tokens
    trained = name([label for label in example.labels if label != -100])
    assert trained == ["y", "o", "<end▁of▁turn>"]
