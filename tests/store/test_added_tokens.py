"""Added tokens: ids in order, rows that are the same bits everywhere, a tokenizer that is kept.

The synthetic tokenizer has ids 0 to 511; <|im_end|> is 2 and "a" is 67.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from hashtune import writers
from hashtune.store.added_tokens import (
    add_tokens,
    grow,
    rows_needed,
    token_ids,
    write_tokenizer,
)
from hashtune.store.loader import load_base, load_tokenizer, resolve
from hashtune.store.manifest import Manifest, Source, tree_sha256
from hashtune.store.synthetic import build_synthetic

TEXTS = ["<|user|>", "<|im_end|>", "a", "<|eot|>"]


@pytest.fixture
def bare(tmp_path: Path) -> Manifest:
    """A base without a chat template, from a folder."""
    folder = tmp_path / "bare"
    build_synthetic(folder, seed=0)
    (folder / "chat_template.jinja").unlink()
    pin = tree_sha256({path.name: writers.sha256_file(path) for path in folder.iterdir()})
    source = Source(kind="path", repo=str(folder), revision="", file=None, sha256=pin)
    return resolve(source, name="bare", say=lambda text: None)


def model(*, tied: bool = True) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 5, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "tie_word_embeddings": tied, "bos_token_id": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, eos_token_id=2))


def test_new_ids_in_order_and_none_for_a_token_that_is_there(bare: Manifest) -> None:
    tokenizer = load_tokenizer(bare, TEXTS)
    assert tokenizer.chat_template is None
    assert tokenizer.convert_tokens_to_ids(TEXTS) == [512, 2, 67, 513]
    assert token_ids(tokenizer, TEXTS) == [2, 67, 512, 513]
    assert (rows_needed([2, 67, 512, 513]), rows_needed([])) == (514, 0)
    assert tokenizer("<|user|><|eot|><|im_end|>")["input_ids"] == [512, 513, 2]
    assert len(load_tokenizer(bare)) == 512
    assert load_tokenizer(bare)("<|eot|>")["input_ids"] != [513]


def test_added_tokens_are_special(bare: Manifest) -> None:
    tokenizer = load_tokenizer(bare, TEXTS)
    assert {n for n, token in tokenizer.added_tokens_decoder.items() if token.special} == {
        *(0, 1, 2),
        *(67, 512, 513),
    }
    assert tokenizer.decode([512, 68, 513], skip_special_tokens=True) == tokenizer.decode([68])


@pytest.mark.parametrize("tied", [True, False])
def test_new_rows_are_the_mean_of_the_old_ones(tied: bool) -> None:
    grown, old = model(tied=tied), model(tied=tied)
    grow(grown, 7)
    for after, before in zip(
        (grown.get_input_embeddings(), grown.get_output_embeddings()),
        (old.get_input_embeddings(), old.get_output_embeddings()),
        strict=True,
    ):
        assert after.weight.shape == (7, 4)
        assert torch.equal(after.weight[:5], before.weight)
        mean = [math.fsum(column) / 5 for column in before.weight.T.tolist()]
        assert torch.allclose(after.weight[5:], torch.tensor([mean, mean]), rtol=1e-6, atol=0)
    assert (grown.get_input_embeddings().weight is grown.get_output_embeddings().weight) == tied
    assert grown.config.vocab_size == 7


def test_rows_that_are_there_stay_as_they_are() -> None:
    same = model()
    weight = same.get_input_embeddings().weight
    grow(same, 5)
    grow(same, 0)
    assert same.get_input_embeddings().weight is weight and weight.shape == (5, 4)


def test_every_load_gives_the_same_bits_whatever_ran_before(bare: Manifest) -> None:
    torch.manual_seed(1)
    one = load_base(bare, dtype="fp32", rows=514).get_input_embeddings().weight
    torch.manual_seed(2)
    two = load_base(bare, dtype="fp32", rows=514).get_input_embeddings().weight
    assert torch.equal(one, two) and one.shape == (514, 64)
    half = load_base(bare, dtype="bf16", rows=514).get_input_embeddings().weight
    assert half.dtype == torch.bfloat16 and half.shape == (514, 64)


def test_the_written_tokenizer_reads_as_the_one_of_training(bare: Manifest, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = load_tokenizer(bare, TEXTS)
    folder = tmp_path / "out"
    for listed in (False, True):
        settings: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
        }
        if listed:
            old = load_tokenizer(bare).added_tokens_decoder
            settings["added_tokens_decoder"] = {str(n): t.__getstate__() for n, t in old.items()}
        writers.write_json(folder / "tokenizer_config.json", settings)
        write_tokenizer(tokenizer, folder)
        again = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        text = "<|user|>a cat<|eot|>and a dog<|im_end|>"
        assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert again.convert_tokens_to_ids(TEXTS) == [512, 2, 67, 513]
        written = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        assert ("513" in written.get("added_tokens_decoder", {})) == listed
    before = (folder / "tokenizer.json").read_bytes()
    write_tokenizer(tokenizer, folder)
    assert (folder / "tokenizer.json").read_bytes() == before


def test_no_added_token_changes_nothing(bare: Manifest) -> None:
    tokenizer, same = load_tokenizer(bare), load_tokenizer(bare)
    add_tokens(tokenizer, [])
    assert tokenizer.backend_tokenizer.to_str() == same.backend_tokenizer.to_str()
