"""A finding about the spec names what holds the value: a line of conf/, or the override."""

from pathlib import Path

import pytest

from hashtune.cli.main import main
from hashtune.errors import Finding, InputError
from hashtune.spec.composition import compose, parse
from hashtune.spec.origins import checked

PIN = "8931622a1ec73165b5fbb15ee7aafbb4cae8e78bd879d1fcccfec4dfe9057190"


def refused(project: Path, *overrides: str) -> list[Finding]:
    with pytest.raises(InputError) as caught:
        checked(parse(compose(project, overrides)), project, overrides)
    return caught.value.findings


def line_of(project: Path, file: str, text: str) -> int:
    lines = (project / file).read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return number


def edit(project: Path, file: str, old: str, new: str) -> None:
    text = (project / file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (project / file).write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    "case",
    [
        ("conf/optim/adamw.yaml", "lr: 0.001", "lr: fast", [], "optim.lr"),
        ("conf/optim/adamw.yaml", "lr: 0.001", "lr: 0.001\nlrr: 1", [], "optim.lrr"),
        ("conf/config.yaml", "data_seed: ${seed}", "data_seed: x", [], "data_seed"),
        ("conf/data/triage.yaml", PIN, "0" * 64, [], "data.sources[0].sha256"),
        ("conf/method/lora.yaml", "dropout: ", "dropout: 7 #", ["method=qlora"], "method.dropout"),
        (
            "conf/experiment/toy.yaml",
            "max_seq_len: 256",
            "max_seq_len: long",
            ["experiment=toy", "seed=7"],
            "data.max_seq_len",
        ),
    ],
)
def test_a_value_in_conf_is_named_with_its_line(project, case):
    file, old, new, overrides, field = case
    edit(project, file, old, new)
    (finding,) = refused(project, *overrides)
    assert finding.field == field
    where = new.partition("\n")[2] or new
    assert (finding.file, finding.line) == (file, line_of(project, file, where))


def test_a_key_that_is_missing_is_named_with_the_file_of_its_section(project):
    edit(project, "conf/schedule/cosine.yaml", "min_lr_ratio:", "#")
    findings = {(finding.file, finding.field) for finding in refused(project)}
    assert ("conf/schedule/cosine.yaml", "schedule.min_lr_ratio") in findings


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["seed=7", "optim.lr=fast"], "override optim.lr=fast: optim.lr: "),
        (["optim.lr=-1", "optim.lr=fast"], "override optim.lr=fast: optim.lr: "),
        (["+optim.lrr=1"], "override +optim.lrr=1: optim.lrr: unknown key; did you mean 'lr'?"),
        (["data.sources=[]"], "override data.sources=[]: data.sources: "),
        (["data.test.uri=null"], "override data.test.uri=null: data.test: has neither a file"),
        (
            ["method=qlora", "quantization.type=none"],
            "conf/method/qlora.yaml:5: method.type: qlora over quantization.type none",
        ),
    ],
)
def test_a_value_that_was_given_is_named_as_given(project, overrides, said):
    (finding,) = refused(project, *overrides)
    assert str(finding).startswith(said)


@pytest.mark.parametrize(
    ("overrides", "file", "said"),
    [
        (
            ["seed=7", "method=nosuch"],
            "override method=nosuch",
            "In 'config': Could not find 'method/nosuch'\n"
            "    Available options in 'method':\n    dora\n    full\n    lora\n    prefix\n"
            "    prompt\n    qlora\n    rslora",
        ),
        (
            ["optim.lrr=1"],
            "override optim.lrr=1",
            "Could not override 'optim.lrr'.\n    To append to your config use +optim.lrr=1",
        ),
        (
            ["optim.lrr=1", "method=nosuch"],
            "overrides optim.lrr=1 method=nosuch",
            "In 'config': Could not find 'method/nosuch'\n"
            "    Available options in 'method':\n    dora\n    full\n    lora\n    prefix\n"
            "    prompt\n    qlora\n    rslora",
        ),
    ],
)
def test_hydras_words_keep_their_lines_and_name_the_override(project, overrides, file, said):
    with pytest.raises(InputError) as caught:
        compose(project, overrides)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.message, finding.file) == ("compose", said, file)


def test_a_conf_file_that_hydra_cannot_use_is_named(project):
    edit(project, "conf/method/qlora.yaml", "- lora", "- lorra")
    with pytest.raises(InputError) as caught:
        compose(project, ["method=qlora"])
    (finding,) = caught.value.findings
    assert finding.file == "override method=qlora"
    edit(project, "conf/config.yaml", "- method: lora", "- method: qlora")
    with pytest.raises(InputError) as caught:
        compose(project)
    (finding,) = caught.value.findings
    assert finding.file == "conf/method/qlora.yaml"


def test_check_names_the_override_that_params_yaml_holds(project, root, capsys):
    """What `dvc exp run -S optim.lr=fast` leaves behind."""
    (project / "dvc.yaml").write_bytes((root / "dvc.yaml").read_bytes())
    text = compose(project, ["experiment=toy", "optim.lr=fast"])
    (project / "params.yaml").write_text(text, encoding="utf-8")
    assert main(["check"]) == 2
    assert "override optim.lr=fast: optim.lr: Input should be" in capsys.readouterr().err
