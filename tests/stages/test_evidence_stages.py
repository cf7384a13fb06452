"""replay, baseline, evaluate, regress and gate, one after the other on the tiny random model."""

import json
import os
from pathlib import Path

import pytest
import yaml

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import records, writers
from hashtune.errors import InputError
from hashtune.stages import baseline, evaluate, gate, regress, replay
from hashtune.store.loader import load_base, load_tokenizer, resolve
from hashtune.store.manifest import manifest_json

# the fixture makes an adapter through PEFT, which reads a deprecated attribute of transformers
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")

SOURCE = {"kind": "synthetic", "repo": "", "revision": "3", "file": None, "sha256": None}
SUITE = [
    {"id": "g1", "slice": "talk", "prompt": "Hello?", "rules": [{"kind": "max_words", "value": 3}]},
    {"id": "c1", "slice": "sums", "question": "1+1", "choices": ["2", "three"], "answer": 0},
    {"id": "g2", "slice": "talk", "prompt": "Name.", "rules": [{"kind": "yes_no"}]},
]
SUITE = [item | {"rationale": "it is asked"} for item in SUITE]
CONF = Path(__file__).resolve().parents[2] / "conf"


def jsonl(path, rows):
    writers.write_jsonl(Path(path), rows)
    return writers.sha256_file(Path(path))


def params(*, template_sha256):
    """The shipped options, made small."""
    options = {
        "tokenizer": "base",
        "data": "triage",
        "evaluation": "default",
        "regression": "default",
        "determinism": "strict",
        "eval_gate": "default",
    }
    values = {
        section: yaml.safe_load((CONF / section / f"{option}.yaml").read_text(encoding="utf-8"))
        for section, option in options.items()
    }
    prompts = [
        {"id": f"p{i}", "messages": [{"role": "user", "content": text}]}
        for i, text in enumerate(("Hello", "What is water?", "Say one"))
    ]
    pin = jsonl("data/prompts.jsonl", prompts)
    replayed = {"uri": "data/prompts.jsonl", "sha256": pin, "max_new_tokens": 8, "batch_size": 2}
    pin = jsonl("data/suite.jsonl", SUITE)
    values["tokenizer"] |= {"sha256": template_sha256, "date": "2024-01-01"}
    values["data"]["replay"] |= replayed
    values["data"]["task"] |= {"fields": ["category"], "base_instruction": "Answer with JSON."}
    values["evaluation"] |= {"batch_size": 4, "max_new_tokens": 8}
    values["evaluation"] |= {"noise_items": 2, "likelihood_items": 2}
    values["regression"] |= {
        "suites": [{"name": "toy", "uri": "data/suite.jsonl", "sha256": pin}],
        "max_new_tokens": 6,
    }
    values["determinism"] |= {"threads": 1}
    values["eval_gate"] |= {"min_task_items": 2, "min_regression_items": 2}
    return values


def save_adapter(manifest):
    """A random, not yet useful adapter on the q and v projections."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(load_base(manifest, dtype="fp32"), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    model.save_pretrained("build/train/adapter")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    manifest = resolve(SOURCE, name="toy")
    writers.write_json(Path("build/base/manifest.json"), manifest_json(manifest))
    write_params(params(template_sha256=manifest.template_sha256))
    rows = [
        {
            "id": f"t{i}",
            "source": "toy",
            "line": i,
            "group": None,
            "messages": writers.canonical_json(
                [
                    {"role": "user", "content": f"ticket {i}"},
                    {"role": "assistant", "content": json.dumps({"category": f"c{i % 2}"})},
                ]
            ),
        }
        for i in range(5)
    ]
    for split in ("train", "test"):
        path = Path(f"build/prepare/{split}.parquet")
        writers.write_parquet(path, rows, records.conversation_schema())
    save_adapter(manifest)
    return tmp_path


def write_params(values):
    Path("params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def change_params(edit):
    values = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    edit(values)
    write_params(values)


def outputs():
    found = [*Path("build").rglob("*"), *Path("reports").glob("*.json")]
    stages = ("replay", "baseline", "evaluate", "regress", "gate")
    return {
        str(path): path.read_bytes()
        for path in found
        if path.is_file() and (path.parts[1] in stages or path.parts[0] == "reports")
    }


def run_all():
    for stage in (replay, baseline, evaluate, regress, gate):
        stage.run()


def test_the_five_stages_in_a_row(project):
    run_all()
    report = writers.read_json(Path("reports/replay.json"))
    assert report["prompts"] == 3 == report["kept"] + sum(report["dropped"].values())
    assert len(writers.read_jsonl(Path("build/replay/ledger.jsonl"))) == 3 - report["kept"]
    base = writers.read_jsonl(Path("build/baseline/task.jsonl"))
    adapter = writers.read_jsonl(Path("build/evaluate/task.jsonl"))
    assert [row["id"] for row in base] == [f"t{i}" for i in range(5)]
    assert [row["id"] for row in adapter] == [row["id"] for row in base]
    assert all(a["prompt"] != b["prompt"] for a, b in zip(base, adapter, strict=True))
    assert [row["majority"]["category"] for row in adapter] == [1.0, 0.0, 1.0, 0.0, 1.0]
    suites = writers.read_jsonl(Path("build/regress/suites.jsonl"))
    assert [(row["id"], row["kind"], row["chance"]) for row in suites] == [
        ("g1", "generated", 0.0),
        ("c1", "choice", 0.5),
        ("g2", "generated", 0.0),
    ]
    verdict = writers.read_json(Path("reports/gate.json"))
    assert verdict["verdict"] == "fail"  # a random adapter scores 0
    assert "task.category.score" in verdict["summary"]
    assert all(rule["meaning"].endswith(".") for rule in verdict["rules"])
    drop = next(rule for rule in verdict["rules"] if rule["name"] == "regression.drop")
    assert drop["interval"][0] <= drop["value"] <= drop["interval"][1]
    assert drop["interval"] == [round(bound, 6) for bound in drop["interval"]]
    for stage, sides in (("baseline", 2), ("evaluate", 1), ("regress", 1)):
        noise = writers.read_json(Path(f"reports/{stage}.json"))["noise_floor"]
        assert [side["floor"] for side in noise.values()] == [0.0] * sides  # fp32
        told = writers.read_json(Path(f"reports/{stage}.json")).get("task", {})
        assert stage == "regress" or told["references"]["items"] == 2
    assert told == {}
    told = writers.read_json(Path("reports/evaluate.json"))["task"]
    assert told["memorised"] == {"examples": 0, "share": 0.0, "ids": []}
    machine = writers.read_json(Path("reports/machine/evaluate.json"))
    assert machine["output_sha256"] == writers.sha256_file(Path("build/evaluate/task.jsonl"))


def test_outputs_are_the_same_bytes_twice_and_name_no_place(project):
    run_all()
    first = outputs()
    run_all()
    assert outputs() == first
    assert len(first) == 2 + 3 + 2 + 2 + 5
    assert not any(str(project).encode() in content for content in first.values())


def test_the_baseline_ignores_the_adapter(project):
    baseline.run()
    first = outputs()
    for file in Path("build/train/adapter").iterdir():
        file.unlink()
    baseline.run()
    assert outputs() == first


def test_without_replay_no_model_is_loaded(project):
    def no_prompts(values):
        values["data"]["replay"] |= {"uri": None, "sha256": None}

    change_params(no_prompts)
    Path("build/base/manifest.json").unlink()
    replay.run()
    assert Path("build/replay/answers.jsonl").read_bytes() == b""
    assert writers.read_json(Path("reports/replay.json")) == {
        "prompts": 0,
        "kept": 0,
        "dropped": {"blank": 0, "unfinished": 0},
    }


def test_kept_replay_answers_end_with_the_base_turn(project):
    tokenizer = load_tokenizer(resolve(SOURCE, name="toy"))
    replay.run()
    before = writers.read_jsonl(Path("build/replay/ledger.jsonl"))
    assert {line["reason"] for line in before} == {"unfinished"}  # the tiny model never stops

    def stop_at_odd_tokens(values):
        values["data"]["replay"]["max_new_tokens"] = 64
        values["tokenizer"]["stops"] = [tokenizer.decode([token]) for token in range(261, 512, 2)]

    change_params(stop_at_odd_tokens)
    replay.run()
    kept = writers.read_jsonl(Path("build/replay/answers.jsonl"))
    assert kept
    for line in kept:
        assert [message["role"] for message in line["messages"]] == ["user", "assistant"]
        assert line["messages"][1]["content"].strip()


def test_the_gate_refuses_a_baseline_of_other_settings(project):
    baseline.run()
    change_params(lambda values: values["evaluation"].update(batch_size=2))
    evaluate.run()
    regress.run()
    with pytest.raises(InputError) as caught:
        gate.run()
    fields = [finding.field for finding in caught.value.findings]
    assert fields == ["task.batch_size", "suites.batch_size"]


def test_the_gate_refuses_an_adapter_without_effect(project):
    from safetensors.torch import load_file, save_file

    file = Path("build/train/adapter/adapter_model.safetensors")
    save_file({name: tensor * 0 for name, tensor in load_file(file).items()}, file)
    for stage in (baseline, evaluate, regress):
        stage.run()
    with pytest.raises(InputError, match="no effect"):
        gate.run()
