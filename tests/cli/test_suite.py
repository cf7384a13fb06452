"""hashtune suite add: one command from a past failure to a pinned item, or nothing changed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hashtune import writers
from hashtune.cli.main import main

WHY = ["--rationale", "The answer ran on in March; a loss means that it does so again."]
CONF = Path("conf/regression/default.yaml")
ASK = ["suite", "add", "--prompt", "Which ticket colour means urgent?", *WHY]


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without outputs."""
    for name in ("conf", "data"):
        shutil.copytree(root / name, tmp_path / name)
    shutil.copy2(root / "dvc.yaml", tmp_path / "dvc.yaml")
    (tmp_path / ".dvc").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is told; no file may change."""
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert main(arguments) == 2
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    return capsys.readouterr().err


def test_a_prompt_becomes_the_first_item_of_a_new_suite(project, capsys):
    comments = [line for line in CONF.read_text().splitlines() if "#" in line]
    assert main([*ASK, "--rule", "contains_any=red", "--rule", "max_words=20"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("now `hashtune compose && dvc repro`\n")
    (row,) = writers.read_jsonl(Path("data/suites/past-failures.jsonl"))
    assert row == {
        "id": "past-failures-63981f6b",
        "prompt": "Which ticket colour means urgent?",
        "rationale": WHY[1],
        "rules": [
            {"kind": "contains_any", "value": ["red"]},
            {"kind": "max_words", "value": 20},
        ],
        "slice": "past-failures",
    }
    assert [line for line in CONF.read_text().splitlines() if "#" in line] == comments
    assert main(["compose"]) == 0
    assert main(["check"]) == 0


def test_an_item_is_appended_and_every_pin_of_its_suite_refreshed(project, capsys):
    other = CONF.with_name("short.yaml")
    shutil.copy2(CONF, other)
    file = Path("data/suites/instructions.jsonl")
    old, old_sha = file.read_bytes(), writers.sha256_file(file)
    assert main([*ASK, "--rule", "contains_any=red", "--to", "instructions", "--id", "mine-1"]) == 0
    new = file.read_bytes()
    assert new.startswith(old)
    assert json.loads(new[len(old) :])["id"] == "mine-1"
    for conf in (CONF, other):
        assert old_sha not in conf.read_text()
        assert f'"{writers.sha256_bytes(new)}"' in conf.read_text()
    out = capsys.readouterr().out
    assert out.count("pinned data/suites/instructions.jsonl in conf/regression/") == 2
    assert "'mine-1' is in suite 'instructions' already [id]" in refused(
        capsys,
        *ASK[:2],
        "--prompt",
        "Quite another thing",
        *WHY,
        "--rule",
        "refusal",
        "--id",
        "mine-1",
    )


def test_answers_of_evaluate_are_asked_as_the_test_split_has_them(project, capsys):
    import pyarrow as pa

    messages = [
        {"role": "system", "content": "Triage the support ticket."},
        {"role": "user", "content": "My parcel never came and nobody answers!"},
        {"role": "assistant", "content": '{"intent": "delivery"}'},
    ]
    schema = pa.schema([("id", pa.string()), ("messages", pa.string())])
    row = {"id": "t-1", "messages": json.dumps(messages)}
    writers.write_parquet(Path("build/prepare/test.parquet"), [row], schema)
    answer = {"id": "t-1", "prompt": "c0ffee", "reference": "{}", "answer": "Sorry to hear it."}
    writers.write_jsonl(Path("build/evaluate/task.jsonl"), [answer])
    command = ["suite", "add", "--from", "build/evaluate", "--id", "t-1", *WHY]
    told = refused(capsys, *command, "--rule", "max_words=9")
    assert "the recorded answer of 't-1' passes these rules [not-caught]" in told
    assert main([*command, "--rule", 'json_object=["intent"]', "--slice", "triage"]) == 0
    (line,) = writers.read_jsonl(Path("data/suites/past-failures.jsonl"))
    assert (line["id"], line["slice"], line["system"], line["prompt"]) == (
        *("t-1", "triage"),
        *("Triage the support ticket.", "My parcel never came and nobody answers!"),
    )


def test_what_regress_answered_is_in_a_suite_already(project, capsys):
    rows = [{"id": "know-001", "output": "Rome"}]
    writers.write_jsonl(Path("build/regress/suites.jsonl"), rows)
    told = refused(
        *(capsys, "suite", "add", "--from", "build/regress", "--id", "know-001", *WHY),
        *("--choice", "Paris", "--choice", "Rome"),
    )
    assert "'know-001' is in suite 'knowledge' already [id]" in told


def test_a_log_of_ones_own_and_several_ids(project):
    rows = [
        {
            "id": "log-1",
            "prompt": "Where is my invoice for May?",
            "answer": "I can't help with it.",
        },
        {"id": "log-2", "prompt": "Please reset the router again.", "answer": "I cannot do that."},
    ]
    writers.write_jsonl(Path("logs.jsonl"), rows)
    ids = ["--id", "log-1", "--id", "log-2"]
    assert main(["suite", "add", "--from", "logs.jsonl", *ids, "--rule", "no_refusal", *WHY]) == 0
    kept = writers.read_jsonl(Path("data/suites/past-failures.jsonl"))
    assert [row["id"] for row in kept] == ["log-1", "log-2"]


def test_a_file_without_final_newline_keeps_its_lines(project):
    file = Path("data/suites/refusals.jsonl")
    old = file.read_bytes().rstrip(b"\n")
    sha = writers.sha256_file(file)
    file.write_bytes(old)
    CONF.write_text(CONF.read_text().replace(sha, writers.sha256_bytes(old)))
    assert main([*ASK, "--rule", "refusal", "--to", "refusals"]) == 0
    assert file.read_bytes().startswith(old + b"\n{")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], "--rule: an item has rules, or choices of which the first is right [usage]"),
        (["--rule", "refusal", "--choice", "a"], "--rule: an item has rules, or choices"),
        (["--rule", "refusl"], "unknown kind 'refusl', nearest known is 'refusal' [suite-item]"),
        (["--choice", "a"], "choices: needs at least two choices, all different [suite-item]"),
        (["--rule", "refusal", "--id", "a", "--id", "b"], "--prompt: what is asked comes from"),
        (["--rule", "refusal", "--config", "conf/regression/x.yaml"], "--config: 'conf/regr"),
        (["--rule", "refusal", "--config", "../x.yaml"], "is not relative to the project root"),
        (["--rule", "refusal", "--from", "x.jsonl"], "--id: --from needs the ids of its answers"),
        (["--rule", "refusal", "--from", "x.jsonl", "--id", "a"], "--from: 'x.jsonl' does not"),
        (["--rule", "refusal", "--prompt", "What is the capital of France"], "[near-duplicate]"),
        (["--rule", "refusal", "--to", "un clean"], "--to: 'un clean' is no name of a suite"),
        (["--rule", "refusal", "--to", "a" * 300], "is no name of a suite [usage]"),
        (["--rule", "refusal", "--id", ""], "id: is no text or blank [suite-item]"),
        (["--rule", "refusal", "--id", "a\nb"], "id: holds a line break or another character"),
        (["--rule", "refusal", "--slice", "a\nb"], "slice: holds a line break or another"),
        (["--rule", "refusal", "--id", "a\udcff"], "--id: is no UTF-8 [not-utf8]"),
        (["--rule", "refusal", "--prompt", "a\udcff", "--slice", "\udcff"], "2 findings"),
    ],
)
def test_what_is_refused_changes_nothing(project, capsys, more, told):
    assert told in refused(capsys, *ASK, *more)


def test_a_suite_file_that_is_not_the_pinned_one_is_refused(project, capsys):
    with Path("data/suites/knowledge.jsonl").open("a") as file:
        file.write("\n")
    assert "[pin]" in refused(capsys, *ASK, "--rule", "refusal")


def test_a_file_that_no_suite_declares_is_left_alone(project, capsys):
    Path("data/suites/past-failures.jsonl").write_text("mine\n")
    assert "exists, but no suite 'past-failures' declares it" in refused(
        capsys, *ASK, "--rule", "refusal"
    )


@pytest.mark.parametrize("file", ["default", "other"])
def test_an_option_file_that_is_no_utf8_is_refused(project, capsys, file):
    CONF.with_name(f"{file}.yaml").write_bytes(b"suites:\n  - \xff\n")
    told = refused(capsys, *ASK, "--rule", "refusal", "--to", "instructions")
    assert f"conf/regression/{file}.yaml: is no UTF-8 (byte 13) [not-utf8]" in told


def test_a_file_without_answers_has_no_such_id(project, capsys):
    Path("logs.jsonl").write_text("")
    told = refused(
        *(capsys, "suite", "add", "--from", "logs.jsonl", "--id", "a"), *WHY, "--rule", "refusal"
    )
    assert "logs.jsonl: has no answer 'a' [unknown-id]" in told


@pytest.mark.parametrize("name", ["null", "true", "123", "1e5"])
def test_a_name_that_yaml_takes_for_another_value_stays_a_text(project, name):
    """Planted: written bare, the spec would have a suite without a name, or with a number."""
    assert main([*ASK, "--rule", "refusal", "--to", name]) == 0
    assert main(["compose"]) == 0
    assert main(["check"]) == 0


def test_a_pin_that_is_none_is_refused(project, capsys):
    sha = writers.sha256_file(Path("data/suites/knowledge.jsonl"))
    CONF.write_text(CONF.read_text().replace(sha, "todo"))
    told = refused(capsys, *ASK, "--rule", "refusal")
    assert "conf/regression/default.yaml: suites[3].sha256:" in told


def test_harness_without_the_package_names_the_command(project, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert "fix: pip install -e '.[lm-eval]'" in refused(capsys, "suite", "harness", "arc_easy")


def test_harness_scores_base_and_adapter_item_by_item(project, capsys, monkeypatch):
    from hashtune.evaluation import harness, models

    opened = []
    row = {"id": "t/0", "slice": "t", "kind": "acc", "score": 1.0}
    monkeypatch.setattr(harness, "package", lambda: None)
    monkeypatch.setattr(models, "open_subject", lambda _, adapter, *__, **___: adapter)

    def rows(subject, tasks, **options):
        opened.append((subject, tasks, options["limit"], options["include"]))
        return [row if subject is None else row | {"score": 0.0}]

    monkeypatch.setattr(harness, "harness_rows", rows)
    monkeypatch.setattr("hashtune.cli.suite_harness.require_manifest", lambda: None)
    monkeypatch.setattr("hashtune.cli.suite_harness.read_manifest", lambda _: None)
    assert main(["compose"]) == 0
    assert main(["suite", "harness", "t", "--limit", "3", "--adapter", "data/a"]) == 0
    assert opened == [(None, ["t"], 3, None), (Path("data/a"), ["t"], 3, None)]
    assert "t: base 1, adapter 0\n" in capsys.readouterr().out
    assert writers.read_jsonl(Path("build/harness/base.jsonl")) == [row]
