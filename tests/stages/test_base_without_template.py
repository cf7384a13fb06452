"""A base that never saw a chat template, end to end: tokenize, pack, train, baseline, evaluate and
the released folder, with a template from Git and the control tokens that the base lacks.

The synthetic tokenizer has ids 0 to 511, <|endoftext|> is 0 and its EOS <|im_end|> is 2, so the
three added tokens are 512, 513 and 514.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import records, writers
from hashtune.cli import inspect
from hashtune.errors import InputError
from hashtune.lineage.card import GROW
from hashtune.spec.load import read_params, read_spec
from hashtune.stages import baseline, evaluate, pack, release, tokenize, train
from hashtune.store.loader import load_tokenizer, materialise, resolve
from hashtune.store.manifest import Manifest, Source, manifest_json, read_manifest, tree_sha256
from hashtune.store.synthetic import build_synthetic
from hashtune.training.signals import StopRequest

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")

TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
ADDED = ["<|user|>", "<|assistant|>", "<|eot|>"]
TALK = [{"role": "user", "content": "What is ice?"}, {"role": "assistant", "content": "Water."}]
TEXT = [{"role": "text", "content": "Ice melts."}]


class Stop(StopRequest):
    """Leaves this process's signal handlers alone."""

    def install(self) -> None: ...


def bare_base(folder: Path) -> Manifest:
    build_synthetic(folder, seed=0)
    (folder / "chat_template.jinja").unlink()
    pin = tree_sha256({path.name: writers.sha256_file(path) for path in folder.iterdir()})
    source = Source(kind="path", repo=str(folder), revision="", file=None, sha256=pin)
    return resolve(source, name="bare", say=lambda text: None)


def write_params(root: Path, *, init_adapter: object = None, **tokenizer: Any) -> None:
    params = read_params(root / "params.yaml")
    params["base_model"] |= {"init_adapter": init_adapter}
    params["data"] |= {"max_seq_len": 64}
    params["data"]["task"] |= {"metric": "exact_match", "fields": [], "base_instruction": None}
    params["tokenizer"] |= {
        "chat_template": "own.jinja",
        "sha256": writers.sha256_bytes(TEMPLATE.encode()),
        "added_tokens": ADDED,
        **tokenizer,
    }
    params["optim"] |= {"lr": 0.01, "weight_decay": 0.0}
    params["duration"] |= {"epochs": 3, "max_steps": 3}
    params["determinism"] |= {"threads": 1}
    params["evaluation"] |= {"max_new_tokens": 4, "batch_size": 2}
    params["regression"] |= {"suites": []}
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(train, "StopRequest", Stop)
    manifest = bare_base(tmp_path / "bare")
    writers.write_json(Path("build/base/manifest.json"), manifest_json(manifest))
    writers.write_json(Path("build/code/train.json"), {})
    writers.write_text(Path("own.jinja"), TEMPLATE)
    write_params(root)
    for name, talks in (("train", [TALK, TEXT]), ("eval", [TALK]), ("test", [TALK])):
        rows = [
            {
                "id": f"{name}{index}",
                "source": "toy",
                "line": index,
                "group": None,
                "messages": writers.canonical_json(talk, indent=None),
            }
            for index, talk in enumerate(talks, 1)
        ]
        schema = records.conversation_schema()
        writers.write_parquet(Path(f"build/prepare/{name}.parquet"), rows, schema)
    return tmp_path


@pytest.fixture(autouse=True)
def determinism_ends_with_the_test() -> Any:
    yield
    torch.use_deterministic_algorithms(False)


def test_the_added_stop_is_trained_and_known(project: Path) -> None:
    tokenize.run()
    talk, text = writers.read_parquet(Path("build/tokenize/train.parquet"))
    assert (talk["input_ids"][0], talk["input_ids"][-1], talk["labels"][-1]) == (512, 514, 514)
    first = talk["labels"].index(next(label for label in talk["labels"] if label != -100))
    assert talk["input_ids"][first - 1] == 513
    assert text["input_ids"][-1] == 2  # a plain text ends with the tokenizer's own EOS
    report = writers.read_json(Path("reports/tokenize.json"))
    assert report["stops"] == ["<|eot|>", "<|im_end|>", "<|endoftext|>"]
    assert report["stop_ids"] == [0, 2, 514] and report["in_several_ids"] == {}
    shown = inspect._tokenizer().decode(talk["input_ids"])
    assert shown == "<|user|>What is ice?<|eot|><|assistant|>Water.<|eot|>"


def test_control_strings_of_several_ids_are_named(
    project: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Legal: a declared stop of several ids. The report and the screen say so."""
    write_params(root, added_tokens=["<|assistant|>"], stops=["<|eot|>"])
    tokenize.run()
    report = writers.read_json(Path("reports/tokenize.json"))
    own = load_tokenizer(read_manifest(Path("build/base/manifest.json")))
    assert report["in_several_ids"] == {
        text: len(own(text)["input_ids"]) for text in ("<|eot|>", "<|user|>")
    }
    assert "warning: '<|user|>' is " in capsys.readouterr().out
    write_params(root, added_tokens=[])
    with pytest.raises(InputError) as caught:
        tokenize.run()
    assert {finding.rule for finding in caught.value.findings} == {"no-stop"}
    assert "tokenizer.added_tokens" in str(caught.value)


def entry_of(manifest: Manifest) -> dict[str, Any]:
    return {
        "spec": read_params(),
        "training": {"init_adapter": None, "branch": None},
        "base": manifest_json(manifest),
        "name": "x",
        "run": "x",
        "checkpoint_step": 3,
        "verdict": "pass",
        "evidence": {"rules": []},
    }


@pytest.mark.parametrize("method", ["lora", "full"])
def test_from_tokens_to_a_released_folder_that_loads_plainly(project: Path, method: str) -> None:
    if method == "full":
        params = read_params()
        params["method"] = dict.fromkeys(params["method"]) | {"type": "full"}
        Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    tokenize.run()
    pack.run()
    train.run()
    baseline.run()
    evaluate.run()
    (before,) = writers.read_jsonl(Path("build/baseline/task.jsonl"))
    assert before["prompt"] and writers.read_json(Path("reports/train.json"))["steps"] == 3
    folder, manifest = project / "released", read_manifest(Path("build/base/manifest.json"))
    release._write_adapter(folder, entry_of(manifest), manifest)
    config = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    assert config == {"eos_token_id": [0, 2, 514]}  # C26: the template's stop is among them
    assert (folder / "chat_template.jinja").read_text(encoding="utf-8") == TEMPLATE
    trained_with = writers.read_json(Path("reports/tokenize.json"))["template_sha256"]
    assert writers.sha256_file(folder / "chat_template.jinja") == trained_with
    load = load_whole if method == "full" else load_plainly
    tokenizer, model = load(materialise(manifest), folder)
    prompt = tokenizer.apply_chat_template(
        TALK[:1], add_generation_prompt=True, return_dict=False, tokenize=True
    )
    assert (prompt[0], prompt[-1]) == (512, 513)
    # greedy, step by step: what the stage evaluate wrote
    ids, written = list(prompt), []
    while len(written) < 4 and not set(written) & {0, 2, 514}:
        with torch.no_grad():
            written.append(int(model(torch.tensor([ids + written])).logits[0, -1].argmax()))
    (answer,) = writers.read_jsonl(Path("build/evaluate/task.jsonl"))
    assert answer["tokens"] == len(written)
    assert answer["answer"] == tokenizer.decode([i for i in written if i not in (0, 2, 514)])


def test_a_released_adapter_with_its_tokens_is_continued_from(project: Path, root: Path) -> None:
    """train, the released folder under data/, train again from it, evaluate; then other orders."""
    tokenize.run()
    pack.run()
    train.run()
    first = writers.read_json(Path("reports/train.json"))
    manifest = read_manifest(Path("build/base/manifest.json"))
    Path("data").mkdir()
    release._write_adapter(Path("data/first"), entry_of(manifest), manifest)
    pin = {"path": "data/first", "sha256": first["adapter_sha256"]}
    write_params(root, init_adapter=pin)
    train.run()
    report = writers.read_json(Path("reports/train.json"))
    assert report["init_adapter"] == first["adapter_sha256"] != report["adapter_sha256"]
    assert report["loss_first"] < first["loss_first"]  # it begins where the first one ended
    baseline.run()
    evaluate.run()
    (answer,) = writers.read_jsonl(Path("build/evaluate/task.jsonl"))
    assert answer["tokens"]
    release._write_adapter(project / "second", entry_of(manifest), manifest)
    rows = writers.read_json(project / "second/added_token_rows.json")
    assert rows == [{"id": 512 + n, "text": text} for n, text in enumerate(ADDED)]
    tokenizer, model = load_plainly(materialise(manifest), project / "second")
    assert tokenizer(ADDED[2])["input_ids"] == [514]
    assert torch.isfinite(model(torch.tensor([[512, 513]])).logits).all()
    for other in (ADDED[::-1], ADDED[:2], []):
        write_params(root, init_adapter=pin, added_tokens=other)
        with pytest.raises(InputError) as caught:
            train.run()
        [finding] = caught.value.findings
        assert (finding.rule, finding.field) == ("init-adapter", "tokenizer.added_tokens")
        assert finding.fix


def load_plainly(base_dir: Path, folder: Path) -> tuple[Any, Any]:
    """The steps of the model card."""
    import peft
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(base_dir, dtype="float32")
    names = {"tokenizer": tokenizer, "model": model}
    exec(GROW.format(added=ADDED), names)
    assert model.get_input_embeddings().num_embeddings == 515
    return tokenizer, peft.PeftModel.from_pretrained(model, str(folder)).eval()


def load_whole(_base_dir: Path, folder: Path) -> tuple[Any, Any]:
    """The steps of the card of full fine-tuning: no base, no PEFT."""
    card = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1]
    snippet = card.split("```")[0].replace("build/release/adapter", str(folder))
    names: dict[str, Any] = {}
    exec(snippet, names)
    model = names["model"].eval()
    assert model.get_input_embeddings().num_embeddings == model.config.vocab_size == 515
    return names["tokenizer"], model


def test_other_added_tokens_are_another_training(project: Path, root: Path) -> None:
    tokenize.run()
    pack.run()
    sections = (
        "method",
        "quantization",
        "optim",
        "schedule",
        "batch",
        "precision",
        "seed",
        "init_seed",
        "device",
        "kernels",
    )
    sections += ("activations", "determinism", "checkpoint", "tokenizer", "base_model")
    one = train._identity_parts(read_spec(*sections))
    write_params(root, added_tokens=ADDED[:2])
    assert train._identity_parts(read_spec(*sections)) != one
