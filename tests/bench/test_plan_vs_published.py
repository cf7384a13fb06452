"""The bench on published measurements: which rows it has, its limits, and small systems by hand."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hashtune.memory.rehearsal.live import Stage, follow

SHARED = Path(__file__).parents[3] / "shared"
ISSUE = {"23", "25", "27", "28", "30", "32", "33", "34", "35", "37", "39"}
TINY = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 256,
}


@pytest.fixture(scope="module")
def rows(script) -> ModuleType:
    """The table of points."""
    return script("published.rows")


@pytest.fixture(scope="module")
def litgpt(script) -> ModuleType:
    """LitGPT's step."""
    return script("published.litgpt_step")


@pytest.fixture(scope="module")
def settings(script) -> ModuleType:
    """LitGPT's settings."""
    return script("published.litgpt_settings")


def test_every_row_of_the_issue_is_scored(rows):
    assert {point.row for point in rows.POINTS} == ISSUE
    assert [p.label for p in rows.POINTS if p.row == "28"] == [
        "LoRA, micro 1",
        "LoRA, micro 2",
        "LoRA, micro 4",
    ]


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is absent")
def test_measurements_are_those_of_the_file(rows):
    """Each figure of a scored row stands in the file's row, and each row is scored or has a
    reason."""
    table = (SHARED / "published_memory.md").read_text(encoding="utf-8")
    lines = {m[1]: m[2] for m in re.finditer(r"^\| (\d+) \|(.*)$", table, re.MULTILINE)}
    for point in rows.POINTS:
        unit = rows.GIB if point.kind == "R" else rows.GB
        figures = [float(text) for text in re.findall(r"\d+\.\d+", lines[point.row])]
        if point.measured is None:
            assert "OOM" in lines[point.row], point
        else:
            assert min(abs(f - point.measured / unit) for f in figures) <= 0.01, point
    left = {int(row) for row in lines} - {int(row) for row in ISSUE}
    reasons = set()
    for rows_ in rows.NOT_SCORED:
        for part in rows_.split(", "):
            first, _, last = part.partition(" to ")
            reasons |= set(range(int(first), int(last or first) + 1))
    assert left <= reasons


def loaded(litgpt: ModuleType, run: object) -> int:
    """Bytes of a tiny model as LitGPT loads it."""
    return follow(litgpt.litgpt(TINY, run)).phases["load"].end


def test_a_tiny_litgpt_weighs_what_its_matrices_do(litgpt, settings):
    # a block: qkv 192 * 64, proj 64 * 64, MLP 3 * 128 * 64, two norms of 64; head and embedding
    # apart, 256 * 64 each; a last norm; all bf16
    block = 192 * 64 + 64 * 64 + 3 * 128 * 64 + 2 * 64
    weights = 2 * (2 * block + 2 * 256 * 64 + 64)
    # r 4 on query and value: A (8, 64), B (128, 4); their 128 places as int64
    adapter = 2 * (2 * (8 * 64 + 128 * 4)) + 2 * 128 * 8
    rotary, ids = 2 * 8 * 16 * 4, 8 * 8
    run = settings.Settings(8, 1, settings.Lora(4))
    assert loaded(litgpt, run) == weights + adapter + rotary + ids


def test_four_bits_are_half_a_byte_and_an_absmax(litgpt, settings):
    matrices = 2 * (192 * 64 + 64 * 64 + 3 * 128 * 64) + 256 * 64
    packed = matrices // 2 + matrices // 64 * 4
    rest = 2 * (256 * 64 + 5 * 64)  # embedding and norms
    adapter = 2 * (2 * (8 * 64 + 128 * 4)) + 2 * 128 * 8
    rotary, ids = 2 * 8 * 16 * 4, 8 * 8
    run = settings.Settings(8, 1, settings.Lora(4), quantize="nf4")
    assert loaded(litgpt, run) == packed + rest + adapter + rotary + ids


@pytest.mark.parametrize(
    ("fact", "tokens"), [("keeps_inputs", 64), ("fp32_logits", 64), ("half_state", 2)]
)
def test_a_fact_that_is_left_out_lowers_the_peak(litgpt, settings, fact, tokens):
    """The planted fault: LitGPT without what its source says."""
    base = {"tokens": tokens, "micro": 2, "lora": settings.Lora(4), "quantize": "nf4"}
    whole = follow(litgpt.litgpt(TINY, settings.Settings(**base, micro_batches=2)))
    less = settings.Settings(**base, micro_batches=2, **{fact: False})
    assert follow(litgpt.litgpt(TINY, less)).peak < whole.peak


def test_the_same_run_with_transformers_blocks_weighs_as_much(script, settings):
    """Separate q, k, v of the same size; adapters of r 4 on q and v; no zeros' places."""
    step = script("published.transformers_step")
    block = 192 * 64 + 64 * 64 + 3 * 128 * 64 + 2 * 64
    weights = 2 * (2 * block + 2 * 256 * 64 + 64) + 2 * 2 * 2 * (2 * 4 * 64)
    run = settings.Settings(8, 1, settings.Lora(4))
    assert step.answers(run)
    assert not step.answers(settings.Settings(8, 1, settings.Lora(4), quantize="nf4"))
    told = follow(step.transformers_blocks(TINY, run))
    assert weights <= told.phases["load"].end <= weights + 1024  # rotary frequencies, ids
    assert told.peak_phase == "backward"


def test_gradients_of_earlier_micro_batches_are_there(litgpt, settings):
    """Full fine-tuning: at least the weights' bytes more."""
    base = {"tokens": 64, "micro": 2, "lora": None, "head_chunk": 0, "micro_batches": 2}
    more = follow(litgpt.litgpt(TINY, settings.Settings(**base))).phases["forward"].peak
    alone = settings.Settings(**base, accumulates=False)
    once = follow(litgpt.litgpt(TINY, alone)).phases["forward"].peak
    block = 192 * 64 + 64 * 64 + 3 * 128 * 64 + 2 * 64
    assert more - once == 2 * (2 * block + 2 * 256 * 64 + 64)


def test_reserved_memory_is_replayed_with_an_emptied_cache(script):
    """30 MiB die; the cache is emptied; 40 MiB are born: 40 MiB at most, not 70."""
    step = script("published.metamath_step")
    found: list[tuple[int, int]] = []

    def run(stage: Stage) -> None:
        import torch

        torch.empty(30 << 20, dtype=torch.uint8)
        at = len(stage.mode.events.numbers)
        torch.empty(40 << 20, dtype=torch.uint8)
        events = stage.mode.events
        found.append((step.most_reserved(events, [at]), step.most_reserved(events, [])))

    follow(run)
    assert found == [(40 << 20, 70 << 20)]


def test_a_run_out_of_memory_that_is_said_to_fit_is_named(rows, script):
    table, predict = script("published.table"), script("published.predict")
    out = next(point for point in rows.POINTS if point.measured is None)
    small = predict.Prediction(rehearsal=10**9, phase="backward", closed=10**9, peers={})
    large = predict.Prediction(rehearsal=10**11, phase="backward", closed=10**11, peers={})
    assert table.wrong_verdicts([(out, large)]) == []
    assert table.wrong_verdicts([(out, small)]) == [
        "row 28, LoRA, micro 4: ended out of memory, 1.00 GB said"
    ]


def predictions(rows: ModuleType, script, factor: float, points: str) -> list[object]:
    """Right for all points, but for `points` by `factor`; too large for those out of memory."""
    predict = script("published.predict")
    found = []
    for point in (*rows.POINTS, *rows.FURTHER):
        off = factor if points == "all" or point in getattr(rows, points) else 1.0
        said = 10**11 if point.measured is None else round(point.measured * off)
        found.append((point, predict.Prediction(said, "backward", said, {})))
    return found


@pytest.mark.parametrize(
    ("off", "faults"),
    [
        ((1.0, "all"), 0),
        ((1.04, "all"), 0),
        ((1.06, "all"), 2),  # the median, of all and of the file's rows
        ((0.85, "all"), 4),
        ((0.85, "FURTHER"), 1),  # 11 of 34 points: the 90th percentile of all
    ],
)
def test_the_verdict_and_its_exit_code(rows, script, monkeypatch, off, faults):
    """The planted fault: predictions that are off turn it red."""
    bench = script("plan_vs_published")
    found = predictions(rows, script, *off)
    assert len(bench.verdict(found)) == faults
    monkeypatch.setattr(bench, "_found", lambda *_: iter(found))
    assert bench.main([]) == (1 if faults else 0)


def test_the_closed_form_calls_no_rehearsal(root):
    """Nor torch: what it imports knows neither."""
    code = (
        "import sys; import published.closed;"
        "print([m for m in sys.modules if m == 'torch' or 'rehearsal' in m or '_step' in m])"
    )
    paths = {"PYTHONPATH": f"{root / 'src'}:{root / 'bench'}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


PAGE = Path("docs/plan_vs_published.md")


def test_the_page_keeps_the_limits(root, script):
    """Scored again from the page's own figures."""
    score, cells = script("published.score"), []
    for line in (root / PAGE).read_text(encoding="utf-8").splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if len(parts) == 11 and re.fullmatch(r"\d+\+?", parts[0]):
            cells.append(parts)
    errors = [
        score.signed_error(float(parts[5]), float(parts[4]))
        for parts in cells
        if parts[4] != "out of memory"
    ]
    assert len(cells) >= 25
    assert score.violations(score.summary(errors), median=0.05, p90=0.12) == []


def test_a_row_of_the_page_is_rehearsed_again(root, rows, script):
    """LitGPT's phi-1.5, nf4: the same figure as on the page."""
    predict = script("published.predict")
    point = next(p for p in rows.FURTHER if p.row == "33+" and p.label == "nf4")
    rehearsed, _ = predict.rehearse(point)
    page = (root / PAGE).read_text(encoding="utf-8")
    assert f"| 33+ | phi-1.5 | nf4 | A | 3.78 | {rehearsed / 1e9:.2f} |" in page
