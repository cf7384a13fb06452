"""The synthetic base: same seed, same bytes; it loads, computes and keeps the pad trap."""

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune.store.synthetic import build_synthetic
from hashtune.writers import sha256_file

FILES = [
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base")
    build_synthetic(directory, seed=0)
    return directory


def hashes(directory: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in sorted(directory.iterdir())}


def test_same_seed_same_bytes_and_no_global_generator(base: Path, tmp_path: Path) -> None:
    import numpy as np
    import torch

    np.random.seed(5)
    torch.manual_seed(5)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    build_synthetic(tmp_path, seed=0)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    assert list(hashes(base)) == FILES
    assert hashes(tmp_path) == hashes(base)


def test_weights_have_the_recorded_hash(base: Path) -> None:
    # PCG64's raw stream and exact arithmetic: the same on every machine and numpy version
    found = sha256_file(base / "model.safetensors")
    assert found == "6ebb9c7954b864a8d92ec42561cd8bf2c0f2fd459633bf40345ebde629219152"


def test_another_seed_changes_the_weights_only(base: Path, tmp_path: Path) -> None:
    build_synthetic(tmp_path, seed=1)
    one, two = hashes(base), hashes(tmp_path)
    assert [name for name in FILES if one[name] != two[name]] == ["model.safetensors"]


def test_tokenizer_round_trip_template_and_pad_trap(base: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    assert len(tokenizer) == 512
    assert tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) == [
        0,
        1,
        2,
    ]
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == 2
    messages = [{"role": "user", "content": " Hé 12"}, {"role": "assistant", "content": '{"a": 1}'}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert text == (
        "<|im_start|>user\n Hé 12<|im_end|>\n<|im_start|>assistant\n" + '{"a": 1}<|im_end|>\n'
    )
    prompt = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    assert text.startswith(prompt)
    ids = tokenizer.apply_chat_template(messages, return_dict=False)
    assert tokenizer.decode(ids) == text
    assert ids.count(2) == 2
    assert tokenizer.tokenize("in 42") == ["in", "Ġ", "4", "2"]


def test_model_loads_whole_and_computes(base: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model, loading = AutoModelForCausalLM.from_pretrained(
        base, local_files_only=True, output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    assert model.num_parameters() == 106_816
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with torch.no_grad():
        logits = model(torch.tensor([[1, 5, 9]])).logits
    assert logits.shape == (1, 3, 512)
    assert logits.isfinite().all() and logits.std() > 0.1
    assert model.generation_config.eos_token_id == [2, 0]
