"""C62 and C63 of the project's list of cases: tied heads, and what merging would do."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hashtune import writers
from hashtune.errors import InputError
from hashtune.lineage.entry import build_entry
from hashtune.spec.schema import Method
from hashtune.stages.release import full_config
from hashtune.training.adapter import write_adapter
from hashtune.training.model import Trainee, build_trainee

MakeTrainee = Callable[..., Trainee]


@pytest.mark.parametrize("tied", [True, False])
def test_c62_a_head_is_tied_after_the_reload_as_it_was_before(
    tied: bool, make_base: Callable[..., Any], tmp_path: Path
) -> None:
    """All weights trained, written, and loaded from disk by transformers alone."""
    from transformers import AutoModelForCausalLM

    def base() -> Any:
        made = make_base()
        if not tied:
            made.config.tie_word_embeddings = False
            made.lm_head.weight = torch.nn.Parameter(made.lm_head.weight.detach() * 1.5)
        return made

    none = dict.fromkeys(("variant", "r", "alpha", "dropout", "targets", "virtual_tokens"))
    method = Method(type="full", **none)
    trainee = build_trainee(base(), method, precision="fp32", seed=1, again=base)
    assert ("lm_head.weight" in trainee.parameters) is not tied
    with torch.no_grad():
        for parameter in trainee.parameters.values():
            parameter.add_(0.02)
    folder = tmp_path / "released"
    write_adapter(trainee.peft, folder, base_name="b", revision="1")
    manifest: Any = SimpleNamespace(config=trainee.peft.config.to_dict())
    writers.write_json(folder / "config.json", full_config(manifest, folder))
    assert writers.read_json(folder / "config.json")["tie_word_embeddings"] is tied
    released, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    same = released.lm_head.weight.data_ptr() == released.get_input_embeddings().weight.data_ptr()
    assert same is tied
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        ours = trainee.peft.eval()(input_ids=ids).logits
        assert torch.equal(released.eval()(input_ids=ids).logits, ours)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_c62_embedding_and_head_are_no_targets(target: str, make_trainee: MakeTrainee) -> None:
    """Trained apart on a tied base one would overwrite the other."""
    with pytest.raises(InputError, match=f"'{target}' matches 0 modules"):
        make_trainee(targets=["q_proj", target])


def test_c63_nothing_is_merged_and_the_entry_names_the_base() -> None:
    """This version has no merge, so no adapter can end in a 4-bit base or be merged twice."""
    source = Path(__file__).parents[2] / "src" / "hashtune"
    text = "".join(file.read_text(encoding="utf-8") for file in source.rglob("*.py"))
    calls = ("merge_and_unload", "merge_adapter", "add_weighted_adapter", ".merge(")
    assert [call for call in calls if call in text] == []
    trained = {"precision": "bf16", "quantization": {"type": "nf4", "double_quant": True}}
    entry = build_entry(
        name="n",
        spec={"name": "run", "spec": trained},
        manifest={"name": "tiny", "source": {"repo": "org/tiny", "revision": "abc"}},
        gate={"verdict": "pass", "rules": []},
        train={"adapter_step": 1, "steps": 1, "init_adapter": None, "branch": None},
        hashes={"code": {}, "data": {}, "adapter": {}},
    )
    assert {key: entry["spec"][key] for key in trained} == trained
