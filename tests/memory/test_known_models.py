"""Known bases: their exact parameters, their names, and what is refused."""

import json
from pathlib import Path

import pytest

from hashtune.errors import InputError
from hashtune.memory.known_models import FOLDER, find_base, known_names
from hashtune.memory.shapes import read_shape

# what the safetensors files of each base hold, and what transformers counts on the meta device
PARAMETERS = {
    "gemma-2-9b": 9_241_705_984,
    "llama-2-13b": 13_015_864_320,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "phi-1.5": 1_418_270_720,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "stablelm-3b-4e1t": 2_795_443_200,
    "stablelm-base-alpha-3b": 3_637_321_728,
    "tinyllama-1.1b": 1_100_048_384,
}


def test_every_known_base_is_counted() -> None:
    assert known_names() == sorted(PARAMETERS)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_the_shape_has_the_published_parameters(name: str) -> None:
    base = find_base(name)
    assert read_shape(base.config).parameters == PARAMETERS[name]
    data = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert data["parameters"] == PARAMETERS[name]
    assert len(data["source"]["commit"]) == 40
    assert base.nominal
    assert base.positions


def test_a_wrong_size_is_seen() -> None:
    """Planted: one key-value head more."""
    config = dict(find_base("llama-3.1-8b").config) | {"num_key_value_heads": 16}
    assert read_shape(config).parameters != PARAMETERS["llama-3.1-8b"]


def test_a_name_in_any_case() -> None:
    assert find_base("Llama-3.1-70B").name == "llama-3.1-70b"


def test_a_config_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {"model_type": "llama", "vocab_size": 7, "hidden_size": 8, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 8}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for path in (folder, folder / "config.json"):
        base = find_base(str(path))
        assert (base.name, base.config, base.positions) == ("mine", config, None)


def test_a_file_of_another_name_names_the_base(tmp_path: Path) -> None:
    file = tmp_path / "my-base.json"
    sizes = '"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 96'
    file.write_text(f'{{"model_type": "gpt2", "n_positions": 1024, {sizes}}}', encoding="utf-8")
    base = find_base(str(file))
    assert base.name == "my-base"
    assert base.positions == 1024  # GPT-2's name for max_position_embeddings


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"did you mean 'llama-3\.1-8b'\?; or a path") as caught:
        find_base("llama-3.1-8")
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("no-model", "--model")
    with pytest.raises(InputError, match=r"known: gemma-2-9b, .*, tinyllama-1\.1b"):
        find_base("x")


@pytest.mark.parametrize("named", ["x" * 5000, "no\0name", "", "../known/qwen3-4b"])
def test_what_is_no_path_is_refused(named: str) -> None:
    with pytest.raises(InputError, match="no-model"):
        find_base(named)


@pytest.mark.parametrize("text", ["{", "[1]", "", "[" * 100_000, '{"vocab_size": ' + "9" * 5000])
def test_a_broken_config_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="json"):
        find_base(str(tmp_path))
