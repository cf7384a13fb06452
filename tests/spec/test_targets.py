"""Targets by name, ending, pattern or all-linear: what each matches, and each fault (C65)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashtune.errors import InputError
from hashtune.spec.targets import entry_faults, match

NAMES = [
    f"model.layers.{layer}.{part}"
    for layer in (0, 1, 10)
    for part in ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj")
]
FIELD = "method.targets"


def of(*layers: int, parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(f"model.layers.{layer}.{part}" for layer in layers for part in parts))


def refused(targets: list[str]) -> list[tuple[str | None, str]]:
    with pytest.raises(InputError) as caught:
        match(NAMES, targets)
    assert {finding.rule for finding in caught.value.findings} == {"target"}
    assert {finding.file for finding in caught.value.findings} == {"params.yaml"}
    return [(finding.field, finding.message) for finding in caught.value.findings]


def test_all_linear_is_every_name() -> None:
    found = match(NAMES, "all-linear")
    assert found.names == tuple(sorted(NAMES))
    assert found.counts == {"all-linear": 9}


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ("q_proj", of(0, 1, 10, parts=("self_attn.q_proj",))),
        ("self_attn.v_proj", of(0, 1, 10, parts=("self_attn.v_proj",))),
        ("0.mlp.up_proj", of(0, parts=("mlp.up_proj",))),  # not layer 10
        ("model.layers.1.mlp.up_proj", of(1, parts=("mlp.up_proj",))),
        (
            r"re:model\.layers\.1\..*",
            of(1, parts=("mlp.up_proj", *(f"self_attn.{n}_proj" for n in "qv"))),
        ),
        (
            r"re:model\.layers\.(0|1)\..*\.(q|up)_proj",
            of(0, 1, parts=("self_attn.q_proj", "mlp.up_proj")),
        ),
        (r"re:.*\.\d\.mlp.*", of(0, 1, parts=("mlp.up_proj",))),
    ],
)
def test_what_an_entry_matches(entry: str, names: tuple[str, ...]) -> None:
    found = match(NAMES, [entry])
    assert found.names == names
    assert found.counts == {entry: len(names)}


def test_entries_may_overlap_and_each_counts_all_it_matches() -> None:
    found = match(NAMES, ["v_proj", "q_proj", r"re:.*\.0\.self_attn\..*"])
    assert found.names == of(0, 1, 10, parts=("self_attn.q_proj", "self_attn.v_proj"))
    assert found.counts == {"v_proj": 3, "q_proj": 3, r"re:.*\.0\.self_attn\..*": 2}


def test_c65_each_entry_without_a_match_is_named_with_the_nearest() -> None:
    assert refused(["q_proj", "v_projj", "attn.v_proj", "mlp.upproj", "proj", "lm_head"]) == [
        (f"{FIELD}[1]", "'v_projj' matches 0 modules; did you mean 'v_proj'?"),
        (f"{FIELD}[2]", "'attn.v_proj' matches 0 modules; did you mean 'self_attn.v_proj'?"),
        (f"{FIELD}[3]", "'mlp.upproj' matches 0 modules; did you mean 'mlp.up_proj'?"),
        (f"{FIELD}[4]", "'proj' matches 0 modules; did you mean 'v_proj'?"),
        (f"{FIELD}[5]", "'lm_head' matches 0 modules; known: q_proj, up_proj, v_proj"),
    ]


def test_a_pattern_must_match_a_whole_name() -> None:
    tail = "a pattern is held against whole names, the nearest is"
    assert refused(["re:q_proj", r"re:model\.layers\.(1|2)\.mlp\.upproj"]) == [
        (f"{FIELD}[0]", f"'re:q_proj' matches 0 modules; {tail} 'model.layers.1.self_attn.q_proj'"),
        (
            f"{FIELD}[1]",
            r"'re:model\.layers\.(1|2)\.mlp\.upproj' matches 0 modules; "
            f"{tail} 'model.layers.1.mlp.up_proj'",
        ),
    ]


def test_faults_of_the_entries_themselves() -> None:
    long = "re:" + "a" * 198
    found = entry_faults(["q_proj", "re:(", long, "q_proj", "all-linear", "re:a{1,99999999999}"])
    assert [(fault.field, fault.message) for fault in found] == [
        (
            f"{FIELD}[1]",
            "'re:(' is no regular expression: missing ), unterminated subpattern at position 0",
        ),
        (f"{FIELD}[2]", "a pattern of 201 characters; 200 are allowed"),
        (f"{FIELD}[3]", "'q_proj' is there twice"),
        (f"{FIELD}[4]", "'all-linear' stands alone, not in a list"),
        (
            f"{FIELD}[5]",
            "'re:a{1,99999999999}' is no regular expression: the repetition number is too large",
        ),
    ]
    assert entry_faults("all-linear") == []
    assert entry_faults(["re:" + "a" * 197, "q_proj"]) == []


def test_an_entry_that_is_empty_or_has_blanks_around_it() -> None:
    found = entry_faults(["", "  ", "re:", "re:\t", " q_proj", "v_proj\n", "re: .*", "re:.* "])
    assert [(fault.field, fault.message) for fault in found] == [
        (f"{FIELD}[0]", "'' is empty"),
        (f"{FIELD}[1]", "'  ' is empty"),
        (f"{FIELD}[2]", "'re:' is empty"),
        (f"{FIELD}[3]", r"'re:\t' is empty"),
        (f"{FIELD}[4]", "' q_proj' begins or ends with a blank, and no module does"),
        (f"{FIELD}[5]", r"'v_proj\n' begins or ends with a blank, and no module does"),
        (f"{FIELD}[6]", "'re: .*' begins or ends with a blank, and no module does"),
        (f"{FIELD}[7]", "'re:.* ' begins or ends with a blank, and no module does"),
    ]


def test_no_entry_reaches_the_match_that_is_no_regular_expression() -> None:
    """A stage run with -s never saw the spec check."""
    assert refused(["re:[", "none"]) == [
        (
            f"{FIELD}[0]",
            "'re:[' is no regular expression: unterminated character set at position 0",
        ),
        (f"{FIELD}[1]", "'none' matches 0 modules; known: q_proj, up_proj, v_proj"),
    ]


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj"], ["re:.*"]])
def test_a_base_without_a_linear_module_is_refused(targets: str | list[str]) -> None:
    with pytest.raises(InputError, match="no linear module beside its head"):
        match([], targets)


@given(st.permutations(NAMES), st.permutations(["q_proj", "mlp.up_proj", r"re:.*\.0\..*"]))
def test_order_decides_nothing(names: list[str], targets: list[str]) -> None:
    assert match(names, targets) == match(NAMES, sorted(targets))
