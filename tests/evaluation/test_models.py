"""Loading an adapter: every tensor finds its place, or the load is refused."""

import os

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune.errors import InputError
from hashtune.evaluation.models import ADAPTER_FILE, attach, load_evaluated
from hashtune.store.numerics import set_fp32_products
from hashtune.store.synthetic import build_synthetic

# the fixture makes an adapter through PEFT, which reads a deprecated attribute of transformers
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("base")
    build_synthetic(folder, seed=3)
    return folder


def base(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.fixture
def adapter(folder, tmp_path):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(base(folder), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.05)
    model.peft_config["default"].base_model_name_or_path = None
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def change(adapter, edit):
    from safetensors.torch import load_file, save_file

    save_file(edit(load_file(adapter / ADAPTER_FILE)), adapter / ADAPTER_FILE)


def test_the_adapter_changes_the_logits(folder, adapter):
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        before = base(folder).eval()(ids).logits
        model = attach(base(folder), adapter).eval()
        after = model(ids).logits
    assert not torch.equal(before, after)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_tf32_is_off_before_the_base_is_loaded(monkeypatch):
    """Whatever the process did before; training may have turned it on."""
    seen = []

    def load(manifest, **settings):
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        return torch.nn.Linear(1, 1)

    monkeypatch.setattr("hashtune.store.loader.load_base", load)
    set_fp32_products("tf32")
    load_evaluated(None, None, dtype="fp32", threads=1)
    torch.set_deterministic_debug_mode("default")
    assert seen == ["ieee"]
    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_missing_and_unexpected_tensors_are_refused(folder, adapter):
    def rename(tensors):
        name = sorted(tensors)[0]
        return {(f"x.{k}" if k == name else k): v for k, v in tensors.items()}

    change(adapter, rename)
    with pytest.raises(InputError) as caught:
        attach(base(folder), adapter)
    found = {finding.rule: finding.message for finding in caught.value.findings}
    assert set(found) == {"adapter-missing", "adapter-unexpected"}
    assert found["adapter-missing"].startswith("1 missing tensors")
    assert "x.base_model" in found["adapter-unexpected"]


def test_an_empty_adapter_is_refused(folder, adapter):
    change(adapter, lambda tensors: {})
    with pytest.raises(InputError, match="8 missing tensors"):
        attach(base(folder), adapter)


def test_no_adapter_is_refused_without_asking_the_hub(folder, tmp_path):
    with pytest.raises(InputError, match="no-adapter"):
        attach(base(folder), tmp_path / "nothing")


def finding_of(folder, adapter):
    """The one finding of the load."""
    with pytest.raises(InputError) as error:
        attach(base(folder), adapter)
    (finding,) = error.value.findings
    assert finding.file is not None
    return finding


def test_tensors_of_another_rank_are_named(folder, adapter):
    """r 4 over a configuration with r 2: A is (r, in), B is (out, r)."""

    def widen(tensors):
        return {
            n: torch.cat([t, t], dim=int("lora_B" in n)).contiguous() for n, t in tensors.items()
        }

    change(adapter, widen)
    finding = finding_of(folder, adapter)
    assert finding.rule == "adapter-shape"
    assert finding.file.endswith(ADAPTER_FILE)
    assert finding.message.startswith("8 tensors of another shape: base_model.model.model.layers.0")
    assert finding.message.count("the model needs [") == 3
    assert "lora_A.default.weight is [4, " in finding.message


def test_a_prompt_of_another_length_is_named(folder, tmp_path):
    from peft import PromptTuningConfig, get_peft_model

    prompt = PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")
    get_peft_model(base(folder), prompt).save_pretrained(tmp_path / "prompt")
    change(tmp_path / "prompt", lambda tensors: {n: t[:2].clone() for n, t in tensors.items()})
    finding = finding_of(folder, tmp_path / "prompt")
    assert finding.rule == "adapter-shape"
    assert "weight is [2, " in finding.message


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{", "adapter-config"),
        ("[]", "adapter-config"),
        ("{}", "adapter-config"),
        ('{"peft_type": "NONE SUCH"}', "adapter-config"),
        ('{"peft_type": "LORA", "r": 0, "target_modules": ["q_proj"]}', "adapter-config"),
        ('{"peft_type": "LORA", "target_modules": ["none_such"]}', "adapter-config"),
    ],
)
def test_a_broken_configuration_is_named(folder, adapter, text, rule):
    (adapter / "adapter_config.json").write_text(text)
    finding = finding_of(folder, adapter)
    assert (finding.rule, finding.file.rpartition("/")[2]) == (rule, "adapter_config.json")


def test_a_folder_without_configuration_is_refused_without_asking_the_hub(folder, adapter):
    (adapter / "adapter_config.json").unlink()
    assert finding_of(folder, adapter).rule == "no-adapter"


def test_a_file_that_is_no_safetensors_is_refused(folder, adapter):
    (adapter / ADAPTER_FILE).write_bytes(b"no tensors")
    assert finding_of(folder, adapter).rule == "adapter-broken"


def test_an_error_of_another_kind_stays_one(folder, adapter, monkeypatch):
    """Only what torch says of shapes is bad input."""
    from peft import PeftModel

    def fail(*_args, **_more):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(PeftModel, "from_pretrained", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        attach(base(folder), adapter)
