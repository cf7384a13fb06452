"""What a released adapter is good for."""

import re
import shutil

import pytest


def test_the_model_cards_snippet_runs_and_the_adapter_answers(toy):
    card = (toy.path / "build/release/adapter/README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", card, flags=re.S)
    assert len(snippet.splitlines()) == 5
    use = (
        "ids = tokenizer.apply_chat_template([{'role': 'user', 'content': 'hi'}],"
        " add_generation_prompt=True, return_tensors='pt', return_dict=True)\n"
        "print('NEW', model.generate(**ids, max_new_tokens=3, do_sample=False).shape[1])\n"
    )
    (toy.path / "snippet.py").write_text(snippet + use)
    assert "NEW" in toy.run("python", "snippet.py", env={"PYTHONPATH": "src"})


def test_entry_names_every_input_and_no_environment(toy):
    text = (toy.path / "build/release/entry.json").read_text()
    for word in ("build/code/train.json", "build/prepare/test.parquet", "conf_sha256", "verdict"):
        assert word in text
    assert str(toy.home) not in text
    assert "commit" not in text


@pytest.fixture
def pushed(toy):
    """Remotes for Git and DVC, and everything pushed: what a release needs."""
    remote = toy.home / "origin.git"
    toy.git("init", "-q", "--bare", str(remote))
    toy.git("remote", "add", "origin", str(remote))
    printed = toy.run("hashtune", "release", "v1.0.0", code=2)
    assert {"[not-pushed]", "[no-remote]"} <= set(re.findall(r"\[[a-z-]+\]", printed))
    toy.run("dvc", "remote", "add", "--local", "-d", "store", str(toy.home / "remote"))
    toy.run("dvc", "push", "-q")
    toy.git("push", "-q", "origin", "main")
    toy.git("fetch", "-q")
    yield toy
    toy.run("dvc", "remote", "remove", "--local", "store")
    toy.git("remote", "remove", "origin")
    if tags := toy.git("tag", "--list", "triage*").split():
        toy.git("tag", "-d", *tags)


def test_a_registered_adapter_can_be_got_and_a_rejected_one_cannot(pushed):
    toy = pushed
    toy.run("hashtune", "release", "v1.0.0", "--stage", "prod")
    for number, rev in enumerate(("v1.0.0", "prod")):
        folder = f"got{number}"
        which = "--rev" if rev == "v1.0.0" else "--stage"
        toy.run("dvc", "artifacts", "get", ".", "triage", which, rev, "-o", folder)
        assert (toy.path / folder / "adapter_model.safetensors").is_file()
        assert "adapter>" in toy.run("hashtune", "chat", "hi", "--adapter", folder)
    config = toy.path / "got0/adapter_config.json"
    assert '"revision": "' in config.read_text(encoding="utf-8")
    toy.edit("got0/adapter_config.json", '"lora_alpha": ', '"lora_alpha": 9')
    printed = toy.run("hashtune", "chat", "hi", "--adapter", "got0", code=2)
    assert "adapter_config.json: is not the released file [tampered]" in printed
    printed = toy.run("hashtune", "chat", "hi", "--adapter", "got0", "--unreleased", code=2)
    assert "[tampered]" in printed
    toy.edit("build/train/adapter/adapter_config.json", '"lora_alpha": ', '"lora_alpha": 9')
    assert "[tampered]" in toy.run("hashtune", "chat", "hi", code=2)
    toy.run("dvc", "checkout", "-q", "-f", "build/train/adapter")
    shutil.rmtree(toy.path / "got0")
    shutil.rmtree(toy.path / "got1")
    toy.run("hashtune", "compose", "experiment=toy", "eval_gate.task_min=0.99")
    toy.run("dvc", "repro")
    assert toy.report("release")["released"] is False
    toy.git("commit", "-q", "-a", "-m", "rejected")
    printed = toy.run("hashtune", "release", "v1.0.1", code=2)
    assert {"[rejected]", "[not-pushed]"} <= set(re.findall(r"\[[a-z-]+\]", printed))
    assert "triage@v1.0.1" not in toy.git("tag")
    assert "[rejected]" in toy.run("hashtune", "chat", "hi", code=2)
    assert "adapter>" in toy.run("hashtune", "chat", "hi", "--unreleased")
    toy.run("gto", "register", "triage", "HEAD", "--version", "v1.0.1")
    output = toy.run(
        "dvc", "artifacts", "get", ".", "triage", "--rev", "v1.0.1", "-o", "none", code=None
    )
    assert not (toy.path / "none").exists(), output


def test_chat_answers_with_base_and_adapter(toy):
    output = toy.run("hashtune", "chat", "My invoice is wrong")
    assert "base>" in output
    assert "adapter>" in output


def test_no_torch_in_the_light_stages(toy):
    """code, spec, prepare, pack, gate and release start without torch."""
    for stage in ("code", "spec", "prepare", "pack", "gate", "release"):
        program = (
            "import sys\n"
            f"import hashtune.stages.{stage} as stage\n"
            "stage.run()\n"
            "assert 'torch' not in sys.modules, 'torch was imported'\n"
            "assert 'transformers' not in sys.modules, 'transformers was imported'\n"
        )
        toy.run("python", "-c", program, env={"PYTHONPATH": "src"})
