"""Greedy generation: equal to transformers' own, independent of the batch, stops and limits."""

import os
from types import SimpleNamespace

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune.errors import Finding, InputError
from hashtune.evaluation.generate import Answer, batch_plan, generate_answers
from hashtune.store.synthetic import build_synthetic

TURN_END = 2


def quiet(items, *, total, label):
    assert total == len(items) and label
    yield from items


class WordTemplate:
    """Prompts are given as ids in the content ("5 7"), answers decode to ids ("5 7")."""

    def __init__(self):
        self.tokenizer = SimpleNamespace(decode=self.decode)

    def decode(self, ids, *, skip_special_tokens, clean_up_tokenization_spaces):
        assert not skip_special_tokens and not clean_up_tokenization_spaces
        return " ".join(map(str, ids))

    def prompt_ids(self, messages):
        return [int(word) for word in messages[0]["content"].split()]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("base")
    build_synthetic(folder, seed=3)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():  # the tiny model repeats itself; larger weights make each token matter
        for parameter in model.model.layers.parameters():
            parameter.mul_(6 if parameter.dim() > 1 else 1)
    return model


def conversations():
    prompts = [[(7 * i + 31 * j) % 500 + 5 for j in range(1 + 3 * i)] for i in range(7)]
    return [[{"role": "user", "content": " ".join(map(str, ids))}] for ids in prompts]


def ask(model, prompts, *, stops=(TURN_END,), new=12, batch_size=3):
    return generate_answers(
        model,
        WordTemplate(),
        prompts,
        stop_ids=stops,
        max_new_tokens=new,
        batch_size=batch_size,
        progress=quiet,
    )


def reference(model, prompt, *, stops, new):
    """transformers' own greedy answer to one prompt, stop included."""
    from transformers import GenerationConfig

    ids = torch.tensor([[int(word) for word in prompt[0]["content"].split()]])
    config = GenerationConfig(
        do_sample=False, max_new_tokens=new, eos_token_id=list(stops), pad_token_id=0
    )
    output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return output[0, ids.shape[1] :].tolist()


def stops_that_occur(model):
    """Ids that the model writes early in some answers, so that rows finish at different times."""
    written = [reference(model, prompt, stops=[TURN_END], new=6) for prompt in conversations()]
    return [written[1][2], written[4][1], TURN_END]


def test_answers_equal_those_of_generate(model):
    stops = stops_that_occur(model)
    answers = ask(model, conversations(), stops=stops)
    for prompt, answer in zip(conversations(), answers, strict=True):
        ids = reference(model, prompt, stops=stops, new=12)
        done = ids[-1] in stops
        text = " ".join(map(str, ids[:-1] if done else ids))
        assert answer == Answer(text=text, tokens=len(ids), finished=done)
    assert {answer.finished for answer in answers} == {True, False}


def test_answers_do_not_depend_on_batch_size_or_order(model):
    stops = stops_that_occur(model)
    alone = ask(model, conversations(), stops=stops, batch_size=1)
    assert ask(model, conversations(), stops=stops, batch_size=7) == alone
    assert ask(model, conversations()[::-1], stops=stops, batch_size=4) == alone[::-1]


@pytest.mark.parametrize("broken", ["attention_mask", "position_ids"])
def test_the_comparison_sees_a_broken_mask_and_broken_positions(model, monkeypatch, broken):
    alone = ask(model, conversations(), batch_size=1)
    forward = model.forward

    def faulty(**kwargs):
        fault = None if broken == "attention_mask" else torch.zeros_like(kwargs[broken])
        return forward(**kwargs | {broken: fault})

    monkeypatch.setattr(model, "forward", faulty)
    assert ask(model, conversations(), batch_size=7) != alone


def test_settings_of_the_model_are_not_inherited(model):
    before = ask(model, conversations())
    model.generation_config.repetition_penalty = 1.9
    model.generation_config.do_sample = True
    try:
        assert ask(model, conversations()) == before
    finally:
        model.generation_config.repetition_penalty = None
        model.generation_config.do_sample = None


def test_a_cache_that_cannot_shrink_gives_the_same_answers(model, monkeypatch):
    stops = stops_that_occur(model)
    expected = ask(model, conversations(), stops=stops)
    monkeypatch.setattr("hashtune.evaluation.generate.can_select", lambda cache: False)
    assert ask(model, conversations(), stops=stops) == expected


def test_stops_of_several_tokens(model):
    prompt = conversations()[4]
    ids = reference(model, prompt, stops=[TURN_END], new=12)
    assert len(set(ids[:4])) == 4  # else the pair might occur earlier
    (answer,) = ask(model, [prompt], stops=[TURN_END, (ids[2], ids[3])])
    assert answer == Answer(" ".join(map(str, ids[:2])), 4, True)


def test_the_first_token_may_be_the_stop(model):
    prompt = conversations()[2]
    first = reference(model, prompt, stops=[TURN_END], new=1)[0]
    assert ask(model, [prompt], stops=[first]) == [Answer("", 1, True)]


def test_the_batch_plan_is_longest_first_then_input_order():
    assert batch_plan([3, 9, 3, 5, 9], batch_size=2) == [[1, 4], [3, 0], [2]]
    assert batch_plan([], batch_size=2) == []


def test_no_prompts_no_answers(model):
    assert ask(model, []) == []


def test_prompts_without_room_and_missing_stops_are_refused(model):
    long = [{"role": "user", "content": " ".join(["9"] * 500)}]
    with pytest.raises(InputError) as caught:
        ask(model, [long, conversations()[0], long], new=13)
    messages = [finding.message for finding in caught.value.findings]
    assert messages[0].startswith("prompt 0 has 500 tokens; with 13 new ones it exceeds the 512")
    assert len(messages) == 2
    with pytest.raises(InputError, match="never end"):
        ask(model, conversations(), stops=())


def test_every_prompt_that_is_refused_is_named(model):
    class Refusing(WordTemplate):
        def prompt_ids(self, messages):
            if "x" in messages[0]["content"]:
                where = "messages[0].content"
                raise InputError(Finding("control-token", "holds the control token", field=where))
            return super().prompt_ids(messages)

    asked = [[{"role": "user", "content": text}] for text in ("5 x", "5 7", "x")]
    with pytest.raises(InputError) as caught:
        generate_answers(
            model,
            Refusing(),
            asked,
            stop_ids=[TURN_END],
            max_new_tokens=2,
            batch_size=2,
            progress=quiet,
        )
    assert [(f.rule, f.message, f.field) for f in caught.value.findings] == [
        ("control-token", f"prompt {n}: holds the control token", "messages[0].content")
        for n in (0, 2)
    ]


def test_a_killed_run_goes_on_after_its_last_batch(model, tmp_path, monkeypatch):
    """The answers are those of a run that was left alone; what was answered is not asked again."""
    from hashtune.evaluation import generate
    from hashtune.evaluation.kept import Kept

    prompts = conversations()
    whole, true, asked = ask(model, prompts), generate._continue, []

    def dies(model, rows, **settings):
        asked.append(len(rows))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return true(model, rows, **settings)

    def again(kept):
        return generate_answers(
            *(model, WordTemplate(), prompts),
            stop_ids=(TURN_END,),
            max_new_tokens=12,
            batch_size=3,
            progress=quiet,
            kept=kept,
        )

    monkeypatch.setattr(generate, "_continue", dies)
    with pytest.raises(KeyboardInterrupt):
        again(Kept(tmp_path))
    kept = Kept(tmp_path)
    assert again(kept) == whole
    assert kept.found == 1
    assert asked == [3, 3, 3, 1]  # the first batch once, the one that died twice
