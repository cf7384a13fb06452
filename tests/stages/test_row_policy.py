"""One policy for bad rows in prepare and tokenize: refused with file and line, or dropped and
counted, by rule and up to a share. Runs both stages on the synthetic base."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

os.environ["HF_HUB_OFFLINE"] = "1"

from hashtune import writers
from hashtune.chat import examples
from hashtune.errors import Finding, InputError
from hashtune.spec.load import read_params
from hashtune.stages import prepare, tokenize
from hashtune.store.loader import load_tokenizer, resolve
from hashtune.store.manifest import Source, manifest_json, read_manifest
from hashtune.store.synthetic import CHAT_TEMPLATE

REPOSITORY = Path(__file__).parents[2]
ALTERNATES = CHAT_TEMPLATE.replace(
    "{%- for message in messages -%}",
    "{%- for message in messages -%}{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}"
    "{{ raise_exception('Roles must alternate') }}{%- endif -%}",
    1,
)
MAIN = "data/rows.jsonl"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def good(number: int) -> list[dict[str, Any]]:
    return [user(f"Is {number} even?"), answer("Count.")]


FORGED = [user("hi<|im_end|>"), answer("yo")]
MASKED = [user("Who?"), answer("Nobody.", train=False)]
FIRST = [answer("yo")]
CALLS = [{"type": "function", "function": {"name": "f", "arguments": "{bad"}}]
CALLING = [user("Call it."), {"role": "assistant", "content": "ok", "tool_calls": CALLS}]
BAD = [FORGED, MASKED, FIRST, CALLING]
RULES = ["control-token", "nothing-to-learn", "no-prompt", "tool-arguments"]


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HASHTUNE_PROCESSES", "1")
    monkeypatch.chdir(tmp_path)
    source = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)
    manifest = resolve(source, name="tiny", say=lambda text: None)
    writers.write_json(Path("build/base/manifest.json"), manifest_json(manifest))


def write(path: str, talks: list[list[dict[str, Any]]]) -> dict[str, Any]:
    text = "".join(json.dumps({"messages": talk}) + "\n" for talk in talks)
    writers.write_text(Path(path), text)
    pin = writers.sha256_bytes(text.encode())
    return {"uri": path, "sha256": pin, "format": "jsonl", "schema": "messages", "fields": {}}


def run(
    talks: list[list[dict[str, Any]]],
    on_bad_row: Any = "error",
    share: float = 1.0,
    *,
    template: str = CHAT_TEMPLATE,
    held_out: list[dict[str, Any]] | None = None,
    limit: int = 64,
    **tokenizer: Any,
) -> dict[str, Any]:
    """Both stages; the report of tokenize on train."""
    params = read_params(REPOSITORY / "params.yaml")
    source = write(MAIN, talks)
    params["data"] |= {"max_rows": None, "max_seq_len": limit, "over_length": "drop"}
    params["data"]["sources"] = [{**source, "name": "toy", "weight": 1.0, "max_rows": None}]
    params["data"]["replay"] |= {"uri": None, "sha256": None, "share": 0.0}
    params["data"]["eval"] |= write("data/eval.jsonl", [held_out or [user("e"), answer("e")]])
    params["data"]["test"] |= write("data/test.jsonl", [[user("t"), answer("t")]])
    params["cleaning"] |= {"on_bad_row": on_bad_row, "max_drop_share": share}
    params["regression"]["suites"] = []
    writers.write_text(Path("own.jinja"), template)
    pin = writers.sha256_bytes(template.encode())
    params["tokenizer"] |= {"chat_template": "own.jinja", "sha256": pin, "date": "2026-01-01"}
    params["tokenizer"] |= tokenizer
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    prepare.run()
    tokenize.run()
    report: dict[str, Any] = writers.read_json(Path("reports/tokenize.json"))["train"]
    return report


def refused(*arguments: Any, **more: Any) -> list[str]:
    """The findings of tokenize without their fixes; prepare must let the rows pass."""
    with pytest.raises(InputError) as caught:
        run(*arguments, **more)
    assert Path("build/prepare/train.parquet").is_file()
    assert not Path("build/tokenize").exists()
    return sorted(str(finding).split("\n")[0] for finding in caught.value.findings)


def trained() -> dict[int, str]:
    """The trained text of each row, by its line."""
    tokenizer = load_tokenizer(read_manifest(Path("build/base/manifest.json")))
    rows = writers.read_parquet(Path("build/prepare/train.parquet"))
    lines = {row["id"]: row["line"] for row in rows}
    return {
        lines[row["conversation_id"]]: tokenizer.decode([n for n in row["labels"] if n != -100])
        for row in writers.read_parquet(Path("build/tokenize/train.parquet"))
    }


def ledger() -> list[tuple[int, str]]:
    lines = writers.read_jsonl(Path("build/tokenize/ledger.jsonl"))
    return sorted((line["line"], line["reason"]) for line in lines)


def test_by_default_every_bad_row_is_a_finding_with_file_and_line() -> None:
    bad_eval = [user("e"), answer("e", weight=0)]
    found = refused([good(1), *BAD], held_out=bad_eval)
    assert [line.split(" ")[0] for line in found] == [
        "data/eval.jsonl:1:",
        *[f"{MAIN}:{n}:" for n in (2, 3, 4, 5)],
    ]
    rules = [line.rsplit("[", 1)[1].rstrip("]") for line in found]
    assert rules == ["nothing-to-learn", *RULES]


def test_drop_takes_bad_rows_out_and_counts_them_by_rule() -> None:
    report = run([good(1), *BAD, good(2)], "drop", 4 / 6)
    assert (report["rows_in"], report["kept"]) == (6, 2)
    assert report["dropped"] == dict.fromkeys(sorted(RULES), 1)
    assert report["examples"] == {"in": 2, "kept": 2, "dropped": {}}
    assert ledger() == [(n, rule) for n, rule in enumerate(RULES, 2)]
    assert trained() == {1: "Count.<|im_end|>", 6: "Count.<|im_end|>"}


def test_over_long_rows_do_not_count_against_the_share() -> None:
    long = [user("Long?"), answer("yes " * 200)]
    report = run([good(1), good(2), long, FORGED], "drop", 0.25)
    assert (report["rows_in"], report["kept"]) == (4, 2)
    assert report["dropped"] == {"control-token": 1, "over_length": 1}


def test_drop_stops_above_the_share_with_counts_and_rows() -> None:
    found = refused([good(1), FORGED, MASKED], "drop", 0.66)
    assert found == [
        "cleaning.max_drop_share: train: 2 of 3 rows dropped (control-token 1, nothing-to-learn "
        "1): share 0.6667 is above 0.66 [drop-share]",
        f"{MAIN}:2: messages[0].content: holds the control token '<|im_end|>' [control-token]",
        f"{MAIN}:3: messages: 0 trained tokens: every assistant message is masked by train or "
        "weight [nothing-to-learn]",
    ]


def test_a_policy_by_rule_drops_only_what_it_names() -> None:
    policy = {"default": "error", "control-token": "drop"}
    (line,) = refused([good(1), FORGED, MASKED], policy)
    assert line.startswith(f"{MAIN}:3: ")
    report = run([good(1), FORGED], policy)
    assert (report["kept"], report["dropped"]) == (1, {"control-token": 1})


def test_a_row_with_two_rules_goes_only_if_both_may() -> None:
    both = [user("hi<|im_end|>"), answer("yo", train=False)]
    policy = {"default": "error", "control-token": "drop"}
    assert len(refused([good(1), both], policy)) == 2


def test_no_policy_drops_what_is_no_fault_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = [Finding("proof", "the two derivations differ", field="messages[1]")]
    monkeypatch.setattr(examples, "prove", lambda *_, **__: list(fault))
    found = refused([good(1)], "drop")
    assert f"{MAIN}:1: messages[1]: the two derivations differ [proof]" in found


def test_dropped_rows_do_not_depend_on_processes_or_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = [user("Long?"), answer("yes " * 200)]
    talks = [good(1), FORGED, long, MASKED, good(2), FIRST, good(3), CALLING]
    names = ["build/tokenize/train.parquet", "build/tokenize/ledger.jsonl"]
    names.append("reports/tokenize.json")
    outputs = []
    for rows, processes in ((128, "1"), (1, "1"), (2, "3")):
        monkeypatch.setattr(tokenize, "CHUNK_ROWS", rows)
        monkeypatch.setenv("HASHTUNE_PROCESSES", processes)
        run(talks, "drop")
        outputs.append([Path(name).read_bytes() for name in names])
    assert outputs[0] == outputs[1] == outputs[2]


def test_nothing_left_says_what_became_of_the_rows() -> None:
    (line,) = refused([FORGED, MASKED], "drop")
    assert line == (
        "no example of train is left: 2 in, 0 over-long, 1 control-token, 1 nothing-to-learn "
        "[nothing-left]"
    )


@pytest.mark.parametrize(("train", "weight"), [(True, 0), (False, 1)])
def test_train_and_weight_that_disagree_are_a_finding(train: bool, weight: int) -> None:
    torn = [user("Who?"), answer("I.", train=train, weight=weight), *good(3)]
    with pytest.raises(InputError) as caught:
        run([good(1), torn])
    assert [str(finding) for finding in caught.value.findings] == [
        f"{MAIN}:2: messages[1].weight: train is {train} and weight is {weight} [train-weight]\n"
        "    fix: keep one of train and weight; both say whether the message has loss"
    ]
    assert run([good(1), torn], "drop", 0.5)["rows_in"] == 1  # prepare dropped it


def test_train_and_weight_that_agree_mask_or_train() -> None:
    first, second = answer("I.", train=True, weight=1), answer("You.", train=False, weight=0)
    run([[user("Who?"), first, user("And?"), second]])
    assert trained() == {1: "I.<|im_end|>"}


SHARED = REPOSITORY.parent / "shared" / "chat_templates"
published = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")
DOUBLED = [user("Hi."), user("Is 3 even?"), answer("No.")]


def test_c07_two_questions_in_a_row_where_the_template_takes_them() -> None:
    report = run([good(1), DOUBLED])
    assert (report["kept"], report["dropped"]) == (2, {})
    assert trained() == {1: "Count.<|im_end|>", 2: "No.<|im_end|>"}
    tokenizer = load_tokenizer(read_manifest(Path("build/base/manifest.json")))
    texts = [
        tokenizer.decode(row["input_ids"])
        for row in writers.read_parquet(Path("build/tokenize/train.parquet"))
    ]
    assert (
        "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>user\nIs 3 even?<|im_end|>\n"
        "<|im_start|>assistant\nNo.<|im_end|>\n"
    ) in texts


def test_c07_two_questions_in_a_row_where_the_template_refuses_them() -> None:
    assert ALTERNATES != CHAT_TEMPLATE
    (line,) = refused([good(1), DOUBLED], template=ALTERNATES)
    assert line == (
        f"{MAIN}:2: messages[1].role: role 'user' follows 'user', which the template does not "
        "accept (Roles must alternate) [template-refuses]"
    )
    policy = {"default": "error", "template-refuses": "drop"}
    report = run([good(1), DOUBLED], policy, 0.5, template=ALTERNATES)
    assert (report["kept"], report["dropped"]) == (1, {"template-refuses": 1})


@published
def test_c07_qwen2_5_takes_two_questions_in_a_row() -> None:
    qwen = (SHARED / "qwen-qwen2_5-7b-instruct.jinja").read_text(encoding="utf-8")
    trailing = [user("hi"), answer("yo"), user("and?")]
    with pytest.raises(InputError) as caught:  # by prepare, before any template
        run([good(1), trailing], template=qwen, limit=256)
    (finding,) = caught.value.findings
    assert (finding.file, finding.line, finding.rule) == (MAIN, 2, "last-not-assistant")
    assert finding.field == "messages[2].role"
    report = run([good(1), DOUBLED], template=qwen, limit=256)
    assert (report["rows_in"], report["kept"], report["dropped"]) == (2, 2, {})
    assert trained() == {1: "Count.<|im_end|>", 2: "No.<|im_end|>"}


@published
def test_c07_gemma_2_names_both_bad_lines_in_one_run() -> None:
    gemma = (SHARED / "google-gemma-2-2b-it.jinja").read_text(encoding="utf-8")
    added = ["<start_of_turn>", "<end_of_turn>"]
    found = refused([good(1), DOUBLED, FIRST], template=gemma, added_tokens=added)
    assert found == [
        f"{MAIN}:2: messages[1].role: role 'user' follows 'user', which the template does not "
        "accept (Conversation roles must alternate user/assistant/user/assistant/...) "
        "[template-refuses]",
        f"{MAIN}:3: messages[0].role: first role is 'assistant' [no-prompt]",
    ]
    run([good(1)], template=gemma, added_tokens=added)  # L1 alone passes
