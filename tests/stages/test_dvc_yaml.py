"""dvc.yaml tells the truth: what a stage reads is what DVC watches."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from hashtune.spec.schema import Section, Spec

STAGES = (
    "code spec base replay prepare tokenize pack plan train baseline evaluate regress gate release"
)


# what no output of train depends on: how often it writes checkpoints and how many it keeps; the
# peak its speed is compared with, and the source lines it names when it skips a step
NO_BITS = {
    *("checkpoint.every_steps", "checkpoint.keep_last"),
    "hardware.device",
    *(f"hardware.peak_tflops.{precision}" for precision in ("fp32", "tf32", "bf16", "fp16")),
    *("plan.probe_steps", "plan.margin"),  # they can only stop a run
}
ONLY_TOLD = {
    ("train", "build/prepare/train.parquet"),
    ("train", "reports/plan.json"),  # what was planned, to compare with what is measured
    ("tokenize", "build/replay/answers.jsonl"),  # named in findings, never read
}


@pytest.fixture(scope="module")
def pipeline(root: Path) -> dict:
    return yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))


def chains(tree: ast.AST) -> set[str]:
    """Every longest attribute chain that starts at the name `spec`: "data.replay.uri", ..."""
    found, inner = set(), set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        parts, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            inner.add(id(value))
            parts.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name) and value.id == "spec":
            found.add((id(node), ".".join(reversed(parts))))
    return {chain for number, chain in found if number not in inner}


def leaves(chain: str) -> list[str]:
    """The params.yaml keys a chain reads: all fields below a section, the key of a leaf."""
    section: type[Section] | None = Spec
    keys: list[str] = []
    for part in chain.split("."):
        if section is None or part not in section.model_fields:
            break  # a method or an attribute of a leaf value
        field = section.model_fields[part]
        keys.append(field.alias or part)
        kind = field.annotation
        section = kind if isinstance(kind, type) and issubclass(kind, Section) else None
    prefix = ".".join(keys)
    return [prefix] if section is None else [f"{prefix}.{k}" for k in expand(section)]


def expand(section: type[Section]) -> list[str]:
    """Dotted leaf keys below a section."""
    keys = []
    for name, field in section.model_fields.items():
        kind, key = field.annotation, field.alias or name
        if isinstance(kind, type) and issubclass(kind, Section):
            keys += [f"{key}.{inner}" for inner in expand(kind)]
        else:
            keys.append(key)
    return keys


def reads(root: Path, stage: str) -> set[str]:
    """params.yaml keys that a stage module touches."""
    source = (root / f"src/hashtune/stages/{stage}.py").read_text(encoding="utf-8")
    return {leaf for chain in chains(ast.parse(source)) for leaf in leaves(chain)}


def test_stages_are_the_designs_in_reading_order(pipeline):
    assert list(pipeline["stages"]) == STAGES.split()


@pytest.mark.parametrize("stage", [s for s in STAGES.split() if s not in ("code", "spec")])
def test_params_cover_what_the_stage_reads(pipeline, root, stage):
    listed = set(pipeline["stages"][stage].get("params", []))
    told = NO_BITS if stage == "train" else set()
    missing = {key for key in reads(root, stage) - told if not any(covers(p, key) for p in listed)}
    assert not missing, f"{stage} reads params that DVC does not watch"


@pytest.mark.parametrize("stage", [s for s in STAGES.split() if s not in ("code", "spec")])
def test_params_are_leaf_keys_that_exist(pipeline, stage):
    known = set(expand(Spec))
    assert set(pipeline["stages"][stage].get("params", [])) <= known


def covers(listed: str, key: str) -> bool:
    return key == listed or key.startswith(f"{listed}.")


def test_the_check_sees_an_undeclared_param():
    """Planted: a stage that reads one key more than it declares."""
    planted = ast.parse("def run():\n    use(spec.optim.lr)\n    use(spec.schedule)\n")
    keys = {leaf for chain in chains(planted) for leaf in leaves(chain)}
    assert keys == {
        "optim.lr",
        "schedule.name",
        "schedule.warmup_fraction",
        "schedule.warmup_steps",
        "schedule.min_lr_ratio",
        "schedule.decay",
        "schedule.decay_fraction",
        "schedule.decay_start",
        "schedule.branch_from",
    }


@pytest.mark.parametrize("stage", STAGES.split())
def test_commands_set_pythonpath_and_leave_no_shell(pipeline, stage):
    command = pipeline["stages"][stage]["cmd"]
    assert command == f"exec env PYTHONPATH=src python -m hashtune.stages.{stage}"


@pytest.mark.parametrize("stage", [s for s in STAGES.split() if s not in ("code", "spec")])
def test_later_stages_wait_for_a_valid_spec_and_their_code(pipeline, stage):
    deps = pipeline["stages"][stage]["deps"]
    assert "build/spec/valid" in deps
    assert (f"build/code/{stage}.json" in deps) or (stage == "release" and "build/code" in deps)


@pytest.mark.parametrize("stage", STAGES.split())
def test_build_paths_in_the_module_are_deps_or_outs(pipeline, root, stage):
    """Files a stage names are declared: DVC must see what it reads and keep what it writes."""
    entry = pipeline["stages"][stage]
    outs = [*entry.get("outs", []), *entry.get("metrics", [])]
    declared = [*entry["deps"], *(o if isinstance(o, str) else next(iter(o)) for o in outs)]
    source = (root / f"src/hashtune/stages/{stage}.py").read_text(encoding="utf-8")
    named = set(re.findall(r'"((?:build|reports)/[\w./{}*-]+)"', source))
    for path in named:
        if (stage, path) in ONLY_TOLD:
            continue
        plain = path.split("{")[0].rstrip("/")
        assert any(plain.startswith(item) or item.startswith(plain) for item in declared), (
            f"{stage} names {path}, dvc.yaml does not"
        )


def test_no_stage_imports_another(root):
    for file in (root / "src/hashtune/stages").glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        modules = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        modules += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        assert not [m for m in modules if m and m.startswith("hashtune.stages")], file.name
