"""Entry and model card."""

import ast

import pytest

from hashtune.lineage.card import SNIPPET, guarantee, model_card
from hashtune.lineage.entry import build_entry, hash_files

RULE = {
    "name": "task.intent.score",
    "value": 0.9,
    "threshold": 0.75,
    "items": 200,
    "verdict": "pass",
}


def entry(verdict="pass", init_adapter=None, branch=None):
    return build_entry(
        name="triage",
        spec={
            "name": "default",
            "spec": {
                "method": {
                    "type": "lora",
                    "variant": "lora",
                    "r": 8,
                    "alpha": 16.0,
                    "virtual_tokens": None,
                },
                "evaluation": {"base_precision": "fp32"},
                "tokenizer": {"added_tokens": []},
                "determinism": {"mode": "strict", "threads": 2},
                "device": "cpu",
                "data": {"name": "tickets"},
            },
        },
        manifest={"name": "tiny", "source": {"repo": "org/tiny", "revision": "abc"}},
        gate={"verdict": verdict, "rules": [RULE]},
        train={"adapter_step": 7, "steps": 9, "init_adapter": init_adapter, "branch": branch},
        hashes={"code": {"a": "1"}, "data": {"b": "2"}, "adapter": {"c": "3"}},
    )


def test_entry_holds_spec_hashes_verdict_and_step():
    made = entry("fail")
    assert (made["name"], made["run"], made["verdict"], made["checkpoint_step"]) == (
        *("triage", "default", "fail"),
        7,
    )
    assert made["data"] == {"b": "2"}


@pytest.mark.parametrize(
    ("mode", "device", "words"),
    [
        ("strict", "cpu", "on the same kind of CPU, with the 3 threads of the spec; on other"),
        ("strict", "cuda", "on the same kind of GPU and driver; on other"),
        ("off", "cpu", "No bits are promised"),
    ],
)
def test_the_card_says_where_which_guarantee_holds(mode, device, words):
    spec = {"determinism": {"mode": mode, "threads": 3}, "device": device}
    assert words in guarantee(spec)
    assert guarantee(spec).count(". ") == 0  # one sentence


def test_card_names_base_rules_and_a_five_line_snippet():
    text = model_card(entry(), folder="build/release/adapter")
    assert "org/tiny at abc" in text
    assert "| task.intent.score | 0.900 | 0.750 | 200 | pass |" in text
    assert len(SNIPPET.splitlines()) == 5
    assert "A lora adapter (r 8, alpha 16)" in text
    assert "continued from" not in text
    assert "first" not in text


def test_card_says_what_the_adapter_continued_from():
    made = entry(init_adapter="5" * 64)
    assert made["training"]["init_adapter"] == "5" * 64
    text = model_card(made, folder="build/release/adapter")
    assert f"It continued from an adapter whose weights have sha256 {'5' * 64}." in text
    ast.parse(SNIPPET.format(folder="x", dtype="float32", grow=""))
    assert "resize_token_embeddings" not in text


def test_card_says_where_a_branch_began():
    branch = {"step": 4, "sha256": "6" * 64, "parent": "7" * 64, "same_code": True}
    text = model_card(entry(branch=branch), folder="x")
    first = f"Its first 4 steps are those of the run {'7' * 64}, whose kept state has sha256 6666"
    assert first in text


def test_card_makes_room_for_added_tokens():
    made = entry()
    made["spec"]["tokenizer"]["added_tokens"] = ["<|a|>", "it's"]
    text = model_card(made, folder="build/release/adapter")
    ast.parse(text.split("```python\n")[1].split("```")[0])
    assert """rows = 1 + max(tokenizer.convert_tokens_to_ids(['<|a|>', "it's"]))""" in text
    assert text.index("resize_token_embeddings") < text.index("PeftModel.from_pretrained")


def test_card_names_type_and_variant():
    made = entry()
    made["spec"]["method"] |= {"type": "qlora", "variant": "dora"}
    text = model_card(made, folder="x")
    assert "tags:\n- qlora\n- dora\n- hashtune\n" in text
    assert "A qlora dora adapter (r 8, alpha 16)" in text


def test_card_of_a_prompt_counts_virtual_tokens():
    made = entry()
    none = dict.fromkeys(("variant", "r", "alpha"))
    made["spec"]["method"] = {"type": "prompt", **none, "virtual_tokens": 20}
    text = model_card(made, folder="x")
    assert "tags:\n- prompt\n- hashtune\n" in text
    assert "A prompt adapter (20 virtual tokens) over tiny" in text


def test_hash_files_walks_folders_in_name_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    (tmp_path / "d").mkdir()
    (tmp_path / "d/b").write_bytes(b"")
    (tmp_path / "d/a").write_bytes(b"a")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert list(hash_files([Path("d")])) == ["d/a", "d/b"]
    assert hash_files([Path("d")])["d/b"] == empty


def test_the_card_of_full_fine_tuning_says_that_it_is_a_whole_model():
    made = entry()
    fields = ("variant", "r", "alpha", "virtual_tokens")
    made["spec"]["method"] = {"type": "full", **dict.fromkeys(fields)}
    text = model_card(made, folder="build/release/adapter")
    assert "library_name: transformers" in text
    assert "tags:\n- full\n- hashtune\n" in text
    assert "A full set of weights, no adapter (fp32, every parameter trained), from tiny\n" in text
    assert "peft" not in text
    assert "it needs neither the base nor PEFT" in text
    (snippet,) = text.split("```python\n")[1:]
    ast.parse(snippet.split("```")[0])


def test_the_front_matter_is_what_the_hub_reads():
    from huggingface_hub import ModelCard

    data = ModelCard(model_card(entry(), folder="x")).data
    told = data.to_dict()
    assert (told["library_name"], told["base_model"]) == ("peft", "org/tiny")
    assert told["tags"] == ["lora", "hashtune"]
    assert (data.base_model_relation, data.pipeline_tag) == ("adapter", "text-generation")
    [result] = data.eval_results
    assert (result.dataset_type, result.metric_type, result.metric_value) == (
        *("tickets", "intent"),
        0.9,
    )
