"""The memory plan of a head that was not rerun: reckoned from the two specs, or why not.

SmolLM2-135M by hand: 134,515,008 parameters, in fp32 538,060,032 bytes. LoRA on every linear takes
r * (in + out) parameters each: q 1152, k 768, v 768, o 1152, gate, up and down 2112, 10,176 a block
and r; 30 blocks at r = 16 are 4,884,480 parameters, 19,537,920 bytes, and AdamW keeps twice that.
At r = 64 all of it is four times as much.
"""

import json
import shutil

import pytest

from hashtune.cli.review import with_memory
from hashtune.memory.reckoned import reckon
from hashtune.review.page import markdown
from hashtune.store.manifest import Manifest, Source

CONFIG = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}


@pytest.fixture
def manifest(two):
    base = two.params(two.base)["base_model"]
    source = Source(
        kind=base["source"],
        repo=base["repo"],
        revision=base["revision"],
        file=base["file"],
        sha256=base["sha256"],
    )
    return Manifest("smollm2", source, {}, CONFIG, "")


def reckoned(two, *manifests, same_data=True):
    return reckon(two.base, two.head, manifests, same_data=same_data)


def figures(found):
    return {figure.words.strip(): (figure.old, figure.new) for figure in found.figures}


def test_the_same_spec_is_the_recorded_plan(two, manifest):
    """What is reckoned for the base is what its stage plan wrote, part by part."""
    report = json.loads((two.base / "reports/plan.json").read_text(encoding="utf-8"))
    found = figures(reckoned(two, manifest))
    assert found["memory needed, GB"] == (report["needed_gb"],) * 2
    for name, size in report["buckets_bytes"].items():
        assert found[f"{name}, GB"] == (round(size / 1e9, 3),) * 2


def test_another_rank(two, manifest):
    two.set({"method.r": 64})
    found = figures(reckoned(two, manifest))
    assert found["weights, GB"] == (0.538, 0.538)
    assert found["adapter, GB"] == (0.02, 0.078)
    assert found["optimizer, GB"] == (0.039, 0.156)


def test_a_head_that_was_not_rerun_is_told_so(two, manifest):
    two.set({"method.r": 64})
    review = two.review()
    assert (review.planned, review.memory) == (False, [])
    page = markdown(with_memory(review, reckoned(two, manifest)))
    assert "Reckoned from the spec, not rerun" in page
    assert "with the longest row that the base's plan was made for, 256 tokens." in page
    assert "| adapter, GB | 0.02 | 0.078 | +0.058 |" in page


def test_a_head_that_does_not_fit_is_a_warning(two, manifest):
    two.set({"hardware.memory_gb": 2.0})
    found = reckoned(two, manifest)
    assert figures(found)["fits"] == ("yes", "no")
    # 2,064,476,672 bytes are needed, the sum of buckets_bytes in reports/plan.json
    assert found.lacking == 64_476_672
    notices = with_memory(two.review(), found).notices
    assert notices[-1].startswith("By its spec the head does not fit: a step lacks 0.06 GB.")


@pytest.mark.parametrize("case", ["data", "length"])
def test_other_rows_are_reckoned_at_their_most(two, manifest, case):
    if case == "length":
        two.set({"data.max_seq_len": 512})
    found = reckoned(two, manifest, same_data=case != "data")
    assert "a row of `data.max_seq_len` tokens, every token trained" in found.note
    old, new = figures(found)["activations, GB"]
    assert new > old if case == "length" else new == old


def test_no_shape_is_told(two):
    found = reckoned(two)
    assert found.figures == []
    assert found.note.startswith("Neither rerun nor reckoned from the spec: in the base")
    assert "no config.json of smollm2 is at hand" in found.note


def test_a_manifest_of_another_base_is_not_taken(two, manifest):
    """Planted: the head names another wheel, and only the old one's shape is at hand."""
    two.set({"base_model.sha256": "1" * 64})
    assert reckoned(two, manifest).figures == []


def test_a_known_base_of_the_hub_needs_no_build(two):
    llama = {
        "base_model.source": "hub",
        "base_model.repo": "meta-llama/Llama-3.1-8B",
        "base_model.revision": "a" * 40,
    }
    two.set(llama)
    shutil.copy(two.head / "params.yaml", two.base / "params.yaml")
    # 8,030,261,248 parameters in fp32
    assert figures(reckoned(two))["weights, GB"] == (32.121, 32.121)


def test_a_spec_that_cannot_be_read_is_told(two, manifest):
    two.set({"batch.micro": "fast"})
    found = reckoned(two, manifest)
    assert found.figures == []
    assert "in the head, `batch.micro`: `Input should be a valid integer" in found.note
