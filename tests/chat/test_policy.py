"""Which findings a policy may drop a row for, and every rule of chat/ has its place there."""

import ast
from pathlib import Path

import pytest

from hashtune.chat.policy import may_drop, share_findings
from hashtune.errors import Finding
from hashtune.spec.rows import TALK_RULES, policy_faults

# the template, the tokenizer, the spec or our own proof is at fault; over-length has its own policy
STOPPING = {
    *("proof", "computed-text", "rewritten", "rebuilt", "several-examples"),
    *("no-stop", "no-eos", "no-template", "not-utf8", "stops", "unstable-render"),
    *("template-hash", "template-kwargs", "template-path"),
    *("drop-share", "nothing-left", "over-length"),
}


def rules_of(source: str) -> set[str]:
    """The literal rules of Finding(...) calls and of (field, rule, message) tuples."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            rule = node.args[0] if node.func.id == "Finding" and node.args else None
        elif isinstance(node, ast.Tuple) and len(node.elts) == 3 and _is_path(node.elts[0]):
            rule = node.elts[1]
        else:
            continue
        if isinstance(rule, ast.Constant) and isinstance(rule.value, str):
            found.add(rule.value)
    return found


def _is_path(node: ast.expr) -> bool:
    """A field path: "messages" or a text made from a variable; not a word of a list of words."""
    return not isinstance(node, ast.Constant) or str(node.value).startswith("messages")


def used(root: Path) -> set[str]:
    files = (root / "src/hashtune/chat").glob("*.py")
    rules = {rule for file in files for rule in rules_of(file.read_text(encoding="utf-8"))}
    return {rule for rule in rules if rule == rule.lower() and rule.replace("-", "").isalpha()}


def test_every_rule_is_about_a_row_or_stops(root: Path) -> None:
    rules = used(root)
    assert {"proof", "trailing", "control-token"} <= rules
    assert rules - {*TALK_RULES} - STOPPING == set()
    assert not STOPPING & {*TALK_RULES}


def test_a_new_rule_would_be_seen() -> None:
    """Planted: a finding and a broken structure under rules that no list has."""
    source = 'raise InputError(Finding("new-one", text))\nfound = (path, "new-two", said)\n'
    assert rules_of(source) == {"new-one", "new-two"}


@pytest.mark.parametrize(
    ("rules", "policy", "goes"),
    [
        (["trailing"], "drop", True),
        (["trailing"], "error", False),
        (["proof"], "drop", False),
        (["trailing", "proof"], "drop", False),
        (["no-stop"], {"default": "drop", "no-stop": "drop"}, False),
        (["trailing"], {"default": "error", "trailing": "drop"}, True),
        (["trailing", "role"], {"default": "error", "trailing": "drop"}, False),
        (["trailing", "role"], {"default": "drop", "role": "error"}, False),
    ],
)
def test_a_row_goes_if_every_rule_may(rules: list[str], policy: object, goes: bool) -> None:
    findings = [Finding(rule, "text", field="messages[0]") for rule in rules]
    assert may_drop(findings, policy) is goes  # type: ignore[arg-type]


def test_a_finding_about_the_tokenizer_stops() -> None:
    fault = Finding("control-token", "cannot escape", field="tokenizer.special_in_content")
    assert not may_drop([fault], "drop")


def test_the_share_is_of_all_rows_and_over_long_ones_are_apart() -> None:
    dropped = {"trailing": 1, "role": 1, "over_length": 5}
    assert share_findings("train", 10, dropped, 0.2) == []
    (finding,) = share_findings("train", 10, dropped, 0.19)
    assert (finding.rule, finding.field) == ("drop-share", "cleaning.max_drop_share")
    assert finding.message == (
        "train: 2 of 10 rows dropped (role 1, trailing 1): share 0.2 is above 0.19"
    )
    assert finding.fix and share_findings("eval", 0, {}, 0.0) == []


def test_a_policy_may_name_rules_of_rows_and_no_other() -> None:
    named = {"default": "error", "blank": "drop", "trailing": "drop", "proof": "drop"}
    assert [rule for rule, _ in policy_faults(named)] == ["proof"]  # type: ignore[arg-type]
