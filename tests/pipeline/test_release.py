"""What a released adapter is good for."""

import re


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


def test_a_registered_adapter_can_be_got_and_a_rejected_one_cannot(toy):
    toy.run("gto", "register", "triage", "HEAD", "--version", "v1.0.0")
    toy.run("dvc", "artifacts", "get", ".", "triage", "--rev", "v1.0.0", "-o", "got")
    assert (toy.path / "got/adapter_model.safetensors").is_file()
    toy.run("hashtune", "compose", "experiment=toy", "eval_gate.task_min=0.99")
    toy.run("dvc", "repro")
    assert toy.report("release")["released"] is False
    toy.git("commit", "-q", "-a", "-m", "rejected")
    toy.run("gto", "register", "triage", "HEAD", "--version", "v1.0.1")
    output = toy.run(
        "dvc", "artifacts", "get", ".", "triage", "--rev", "v1.0.1", "-o", "none", code=None
    )
    assert not (toy.path / "none").exists(), output
    toy.git("tag", "-d", "triage@v1.0.0", "triage@v1.0.1")


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
