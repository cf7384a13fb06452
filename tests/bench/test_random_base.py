"""A base of random weights in a given shape, with the tokenizer of another."""

from transformers import AutoModelForCausalLM, AutoTokenizer

from hashtune.store.synthetic import build_synthetic

SHAPE = {
    "--hidden": 32,
    "--layers": 2,
    "--heads": 4,
    "--kv-heads": 2,
    "--intermediate": 48,
    "--positions": 96,
}


def test_it_has_the_shape_and_the_tokenizer_and_the_same_bits_twice(script, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    build_synthetic(other, seed=0)
    bench = script("sft.random_base")
    options = [text for name, value in SHAPE.items() for text in (name, str(value))]
    for name in ("one", "two"):
        assert bench.main([str(tmp_path / name), "--tokenizer", str(other), *options]) == 0
    weights = [tmp_path / name / "model.safetensors" for name in ("one", "two")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "one", local_files_only=True)
    theirs = AutoTokenizer.from_pretrained(other, local_files_only=True)
    assert tokenizer.get_vocab() == theirs.get_vocab()
    assert tokenizer.chat_template == theirs.chat_template
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "one", local_files_only=True)
    assert str(model.dtype) == "torch.bfloat16"
    # tied embedding; q and o 32 x 32, k and v 32 x 16; three 32 x 48; two norms; the last norm
    block = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48 + 2 * 32
    parameters = len(theirs) * 32 + 2 * block + 32
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert f"{parameters:,} parameters" in capsys.readouterr().out


def test_the_default_is_of_the_1b_class(script):
    wanted = script("sft.random_base").arguments(["folder", "--tokenizer", "other"])
    shape = (wanted.hidden, wanted.layers, wanted.heads, wanted.kv_heads, wanted.intermediate)
    assert shape == (2048, 16, 32, 8, 8192)
