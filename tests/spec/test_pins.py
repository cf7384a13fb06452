"""Nothing unpinned and nothing contradictory gets through."""

import pytest

from hashtune.errors import InputError
from hashtune.spec.composition import compose, parse
from hashtune.spec.load import validate
from hashtune.spec.pins import check_pins

PII = "data/patterns/pii.jsonl"
HASH = "0" * 64
WSD = {"schedule.name": "wsd", "schedule.decay": "linear", "schedule.decay_fraction": 0.2}
SOFT = {
    "method.type": "prompt",
    **dict.fromkeys([f"method.{n}" for n in ("variant", "r", "alpha", "dropout", "targets")]),
    "method.virtual_tokens": 20,
    "data.packing": False,
    "batch.attention": "mask",
}
FULL = {
    "method.type": "full",
    **dict.fromkeys([f"method.{n}" for n in ("variant", "r", "alpha", "dropout", "targets")]),
}
BRANCH = {"path": "data/no", "sha256": HASH}
START = {"schedule.decay_start": 80}


def faults(project, changes):
    params = parse(compose(project))
    for dotted, value in changes.items():
        *sections, key = dotted.split(".")
        target = params
        for section in sections:
            target = target[int(section)] if section.isdigit() else target[section]
        target[key] = value
    return check_pins(validate(params), project)


def found(project, changes):
    return [(f.field, f.rule) for f in faults(project, changes)]


def test_the_shipped_spec_is_pinned(project):
    assert found(project, {}) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"base_model.source": "hub", "base_model.revision": "main"},
            ("base_model.revision", "unpinned"),
        ),
        (
            {"base_model.source": "hub", "base_model.revision": "a" * 39},
            ("base_model.revision", "unpinned"),
        ),
        ({"base_model.revision": ">=0.1"}, ("base_model.revision", "unpinned")),
        ({"base_model.repo": "--index-url=http://x"}, ("base_model.repo", "unpinned")),
        ({"base_model.repo": "git+https://x/y"}, ("base_model.repo", "unpinned")),
        ({"base_model.sha256": None}, ("base_model.sha256", "unpinned")),
        (
            {"base_model.source": "path", "base_model.sha256": None},
            ("base_model.sha256", "unpinned"),
        ),
        (
            {"base_model.init_adapter": {"path": "data/no", "sha256": HASH}},
            ("base_model.init_adapter", "no-file"),
        ),
        ({"data.eval.sha256": None}, ("data.eval.sha256", "unpinned")),
        ({"data.replay.sha256": None}, ("data.replay.sha256", "unpinned")),
        ({"data.sources.0.sha256": HASH}, ("data.sources[0].sha256", "pin-differs")),
        ({"data.test.sha256": HASH}, ("data.test.sha256", "pin-differs")),
        ({"data.test.uri": "data/none.jsonl"}, ("data.test", "no-file")),
        ({"data.test.uri": "../test.jsonl"}, ("data.test", "outside-root")),
        ({"data.test.uri": "/etc/passwd"}, ("data.test", "outside-root")),
        ({"data.test.uri": "http://x/d.jsonl"}, ("data.test", "outside-root")),
        ({"data.sources.0.uri": "file:///etc/passwd"}, ("data.sources[0]", "outside-root")),
        ({"data.test.uri": "https://me:word@x/d.jsonl"}, ("data.test", "secret")),
        ({"data.test.uri": "https://me:word@[x/d.jsonl"}, ("data.test", "secret")),
        ({"data.test.uri": "https://[x/d.jsonl"}, ("data.test", "address")),
        ({"data.sources.0.uri": "s3://"}, ("data.sources[0]", "address")),
        ({"data.test.uri": "x" * 300}, ("data.test", "no-file")),
        ({"data.test.uri": "a\0b"}, ("data.test", "no-file")),
        ({"data.replay.uri": "https://x/d.jsonl"}, ("data.replay", "outside-root")),
        ({"regression.suites.0.uri": "s3://x/d"}, ("regression.suites[0]", "outside-root")),
        ({"regression.suites.1.sha256": HASH}, ("regression.suites[1].sha256", "pin-differs")),
        (
            {"cleaning.patterns": [{"name": "p", "uri": PII, "sha256": HASH, "action": "drop"}]},
            ("cleaning.patterns[0].sha256", "pin-differs"),
        ),
        ({"tokenizer.chat_template": "../x.jinja"}, ("tokenizer", "outside-root")),
        ({"quantization.type": "nf4"}, ("method.type", "contradiction")),
        ({"method.type": "qlora"}, ("method.type", "contradiction")),
        (
            {"method.type": "qlora", "method.variant": "dora", "quantization.type": "int8"},
            ("method.variant", "contradiction"),
        ),
        ({"method.targets": ["q_proj", "re:("]}, ("method.targets[1]", "target")),
        ({"method.r": None}, ("method.r", "contradiction")),
        ({"method.virtual_tokens": 20}, ("method.virtual_tokens", "contradiction")),
        ({**SOFT, "method.virtual_tokens": None}, ("method.virtual_tokens", "contradiction")),
        ({**SOFT, "method.targets": "all-linear"}, ("method.targets", "contradiction")),
        ({**SOFT, "method.dropout": 0.0}, ("method.dropout", "contradiction")),
        ({**SOFT, "data.packing": True}, ("data.packing", "contradiction")),
        (
            {**SOFT, "activations.checkpointing": "full"},
            ("activations.checkpointing", "contradiction"),
        ),
        (
            {**SOFT, "batch.attention": "documents"},
            ("batch.attention", "contradiction"),
        ),
        (
            {**SOFT, "batch.attention": "documents", "batch.layout": "padding_free"},
            ("batch.layout", "contradiction"),
        ),
        (
            {**SOFT, "tokenizer.added_tokens": ["<|a|>"]},
            ("tokenizer.added_tokens", "contradiction"),
        ),
        ({"checkpoint.every_steps": 3}, ("checkpoint.eval_every_steps", "contradiction")),
        ({"data.task.fields": []}, ("data.task.fields", "contradiction")),
        ({"schedule.warmup_steps": 5}, ("schedule.warmup_steps", "contradiction")),
        ({"schedule.warmup_fraction": None}, ("schedule.warmup_steps", "contradiction")),
        ({"schedule.decay": "linear"}, ("schedule.decay", "contradiction")),
        ({"schedule.decay_start": 5}, ("schedule.decay", "contradiction")),
        ({"schedule.name": "wsd"}, ("schedule.decay", "contradiction")),
        ({"schedule.name": "wsd"}, ("schedule.decay_start", "contradiction")),
        ({**WSD, "schedule.decay_start": 5}, ("schedule.decay_start", "contradiction")),
        ({"checkpoint.keep_stable": 5}, ("checkpoint.keep_stable", "contradiction")),
        ({"schedule.branch_from": BRANCH}, ("schedule.branch_from", "contradiction")),
        ({**WSD, "schedule.branch_from": BRANCH}, ("schedule.branch_from", "no-file")),
        (
            {"batch.layout": "padding_free", "batch.attention": "mask"},
            ("batch.layout", "contradiction"),
        ),
        ({"optim.name": "paged_adamw_8bit"}, ("optim.name", "cuda-only")),
        ({"optim.name": "paged_adamw_32bit"}, ("optim.name", "cuda-only")),
        ({"precision": "tf32"}, ("precision", "cuda-only")),
        ({"optim.master_weights": False}, ("optim.master_weights", "contradiction")),
        (
            {"activations.offload": True, "hardware.device": "cuda"},
            ("activations.offload", "contradiction"),
        ),
        ({"activations.offload": True}, ("activations.offload", "cuda-only")),
        ({"data.replay.uri": None}, ("data.replay.share", "replay-share")),
        ({"data.test.uri": None}, ("data.test", "no-held-out")),
        ({"tokenizer.added_tokens": ["<|a|>", " "]}, ("tokenizer.added_tokens[1]", "added-tokens")),
        (
            {"tokenizer.added_tokens": ["<|a|>", "<|a|>"]},
            ("tokenizer.added_tokens[1]", "added-tokens"),
        ),
        ({"data.test.schema": "text"}, ("data.test.schema", "text-test")),
        (
            {
                "data.test.uri": None,
                "data.test.fraction": 0.1,
                "data.sources.0.schema": "text",
            },
            ("data.sources[0].schema", "text-test"),
        ),
        (
            {"data.sources.0.fields": {"mesages": "x"}},
            ("data.sources[0].fields.mesages", "fields"),
        ),
        ({"data.eval.fields": {"messages": " "}}, ("data.eval.fields.messages", "fields")),
        (
            {"data.test.fields": {"messages": "x", "group": "x"}},
            ("data.test.fields.group", "fields"),
        ),
        (
            {"cleaning.on_bad_row": {"default": "error", "blanks": "drop"}},
            ("cleaning.on_bad_row.blanks", "policy"),
        ),
        (
            {"cleaning.on_bad_row": {"blank": "drop"}},
            ("cleaning.on_bad_row.default", "policy"),
        ),
    ],
)
def test_each_loose_end_is_named_by_field(project, changes, expected):
    assert expected in found(project, changes)


def test_a_commit_is_a_pin(project):
    changes = {"base_model.source": "hub", "base_model.revision": "a" * 40}
    assert found(project, changes) == []


def test_a_file_that_is_not_there_is_told_its_way_back(project):
    """The spec stage is the first to look; prepare says the same."""
    (project / "data/big.dvc").write_text("outs: []\n")
    pointer = project / "data/pointer.jsonl"
    pointer.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    for uri, said, fix in (
        ("data/big/d.jsonl", "does not exist", "dvc pull data/big.dvc"),
        ("data/triage/tset.jsonl", "does not exist", "did you mean 'test.jsonl'?"),
        ("data/triage", "is a folder", "name one file in it"),
        ("data/pointer.jsonl", "has sha256", "this is a Git LFS pointer: git lfs pull"),
    ):
        [fault] = faults(project, {"data.test.uri": uri})
        assert said in fault.message
        assert fault.fix == fix


def test_a_changed_byte_in_data_is_seen(project):
    file = project / "data/triage/train.jsonl"
    file.write_bytes(file.read_bytes() + b"\n")
    assert found(project, {}) == [("data.sources[0].sha256", "pin-differs")]


def test_sources_and_held_out_files_may_be_remote(project):
    changes = {"data.sources.0.uri": "https://x/d.jsonl", "data.test.uri": "s3://bucket/d.jsonl"}
    assert found(project, changes) == []


@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_a_prompt_over_unpacked_rows_is_whole(project, kind):
    for stored in ("none", "nf4", "int8"):
        assert found(project, {**SOFT, "method.type": kind, "quantization.type": stored}) == []


PADDED = {"batch.layout": "padding_free", "batch.attention": "mask"}
MASKED = {"batch.attention": "mask", "batch.layout": "rows"}
OFFLOAD = {"activations.offload": True}


@pytest.mark.parametrize(
    ("changes", "fixes", "fixed"),
    [
        (
            {**SOFT, **PADDED, "batch.attention": "documents"},
            ["batch.attention=mask", "batch.layout=rows"],
            MASKED,
        ),
        ({**SOFT, **PADDED}, ["batch.layout=rows"], {"batch.layout": "rows"}),
        (
            {**SOFT, "batch.attention": "documents", "batch.layout": "length_grouped"},
            ["batch.attention=mask"],
            {"batch.attention": "mask"},
        ),
        (PADDED, ["batch.attention=documents, or batch.layout=rows"], {"batch.layout": "rows"}),
        (OFFLOAD, ["activations.offload=false"], {"activations.offload": False}),
        (
            {**OFFLOAD, "activations.checkpointing": "full"},
            ["activations.offload=false"],
            {"activations.offload": False},
        ),
        (
            {**OFFLOAD, "hardware.device": "cuda"},
            ["activations=full, or activations.offload=false"],
            {"activations.checkpointing": "full"},
        ),
    ],
)
def test_what_a_fix_says_is_accepted(project, changes, fixes, fixed):
    """Planted: each alone was told a fix that the next finding refused."""
    assert [fault.fix for fault in faults(project, changes)] == fixes
    assert found(project, changes | fixed) == []


def test_a_method_s_wrong_fields_are_all_named(project):
    changes = {"method.type": "prefix", "data.packing": False, "batch.attention": "mask"}
    names = ("variant", "r", "alpha", "dropout", "targets", "virtual_tokens")
    assert found(project, changes) == [(f"method.{name}", "contradiction") for name in names]


def test_full_has_no_field_beside_its_type(project):
    assert found(project, FULL) == []
    wrong = {"method.type": "full"}
    names = ("variant", "r", "alpha", "dropout", "targets")
    assert found(project, wrong) == [(f"method.{name}", "contradiction") for name in names]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_full_excludes_is_refused_once(project, precision):
    init = {"path": "data/none", "sha256": "0" * 64}
    changes = {**FULL, "quantization.type": "nf4", "base_model.init_adapter": init}
    changes |= {"optim.master_weights": False, "precision": precision}
    assert sorted(found(project, changes)) == [
        ("base_model.init_adapter", "contradiction"),
        ("optim.master_weights", "contradiction"),
        ("quantization.type", "contradiction"),
    ]


def test_full_in_tf32_may_be_planned_for_a_gpu(project):
    tf32 = {**FULL, "precision": "tf32"}
    assert found(project, tf32 | {"hardware.device": "cuda"}) == []
    assert found(project, tf32) == [("precision", "cuda-only")]


def test_a_paged_optimizer_may_be_planned_for_a_gpu(project):
    assert found(project, {"optim.name": "paged_adamw_8bit", "hardware.device": "cuda"}) == []


def test_steps_instead_of_fractions(project):
    changes = {"schedule.warmup_fraction": None, "schedule.warmup_steps": 10}
    assert found(project, changes | {**WSD, "schedule.decay_fraction": None} | START) == []


@pytest.mark.parametrize("key", ["optim.beta1", "optim.beta2"])
def test_a_beta_of_one_never_forgets_and_is_refused(project, key):
    with pytest.raises(InputError, match=key):
        found(project, {key: 1.0})


def test_train_and_eval_may_be_plain_text_and_both_mixed_with_conversations(project):
    changes = {"data.sources.0.schema": "text", "data.eval.schema": "text"}
    assert found(project, {**changes, "data.over_length": "split"}) == []
