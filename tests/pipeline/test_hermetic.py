"""No stage reads what dvc.yaml does not name: each runs once more with its declared inputs alone,
in another folder, process and minute, and must write the same bytes."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from hashtune.lineage.differences import first_difference
from hashtune.spec.load import read_spec
from hashtune.spec.pins import pinned_files
from hashtune.store.numerics import ON_THE_CPU

# places and listeners; HASHTUNE_PROCESSES changes no byte (tests/chat, tests/stages)
VARIABLES = {"HASHTUNE_HOME", "HASHTUNE_TRACKERS", "HASHTUNE_PROCESSES"}
VARIABLES |= set(ON_THE_CPU)  # asked for to be refused
VARIABLES |= {"PYARROW_IGNORE_TIMEZONE"}  # pyarrow asks, for datetimes, which we write none
# what changes no output, and why it is asked for. Two files of the project are told aside and
# absent here: build/prepare/train.parquet names the lines of a skipped step, reports/plan.json is
# what train compares its first steps' memory with, and may only stop it.
ALLOWED = {
    "spec": ("program: git",),  # which files of conf/ Git knows
    # dvclive looks for a DVC repository's settings; urllib3 asks whether there is IPv6
    "train": ("file: /etc/xdg/dvc/config", ".config/dvc/config", "network: ('::1', 0)"),
}
PLANTS = {
    "an undeclared file of the project": ("Path('README.md').read_text()", "FileNotFoundError"),
    "a file outside": ("Path('/etc/hostname').read_text()", "file: /etc/hostname"),
    "an environment variable": ("__import__('os').environ.get('SALT', '')", "variable: SALT"),
    "a variable by membership": ("'SALT' in __import__('os').environ", "variable: SALT"),
    "the network": (
        "__import__('socket').socket(type=2).connect(('127.0.0.1', 9))",
        "network: ('127.0.0.1', 9)",
    ),
    "another program": ("__import__('subprocess').run(['true'])", "program: true"),
    "the clock": ("__import__('time').time_ns()", "reports/gate.json"),
    "the process": ("__import__('os').getpid()", "reports/gate.json"),
    "the folder": ("str(Path.cwd())", "reports/gate.json"),
}


class Stage:
    """One stage of dvc.yaml and a folder with its declared inputs."""

    def __init__(self, toy, name, folder):
        self.name, self.folder, self.toy = name, folder, toy
        self.entry = yaml.safe_load((toy.path / "dvc.yaml").read_text())["stages"][name]

    def give(self):
        """Copy its deps, its params.yaml and the files that its params pin by sha256."""
        (self.folder / ".dvc").mkdir(parents=True)  # marks the root of a project
        params = self.entry.get("params", [])
        pins = pinned_files(read_spec(path=self.toy.path / "params.yaml"))
        files = [*self.entry["deps"], "params.yaml"]
        files += [uri for field, uri, _ in pins if self._declares(field.split("[")[0], params)]
        for name in dict.fromkeys(files):
            source, target = self.toy.path / name, self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            if not target.exists():
                copy(source, target)
        return self

    @staticmethod
    def _declares(field, params):
        return field in params or f"{field}.sha256" in params

    def outputs(self):
        listed = [*self.entry.get("outs", []), *self.entry.get("metrics", [])]
        return [entry if isinstance(entry, str) else next(iter(entry)) for entry in listed]

    def differs(self):
        """The first output whose bytes are not those of `dvc repro`."""
        for name in self.outputs():
            if found := first_difference(self.toy.path / name, self.folder / name):
                return f"{name}: {found}"
        return None


def run(toy, stages, tmp_path, *, plants=None, code=0):
    """Run the stages in one process; their findings, and what was printed."""
    report = tmp_path / "report.json"
    src = str(toy.path / "src")
    output = toy.run(
        *("python", str(Path(__file__).parent / "hermetic.py"), str(report)),
        *(f"{stage.name}={stage.folder}" for stage in stages),
        env={
            "PYTHONPATH": src if plants is None else f"{plants}:{src}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(tmp_path),
        },
        code=code,
    )
    return json.loads(report.read_text()) if report.exists() else {}, output


def unknown(stage, found):
    """What is left without what is allowed."""
    named = {f"variable: {name}" for name in VARIABLES}
    return [t for t in found if t not in named and not t.endswith(ALLOWED.get(stage, ("\n",)))]


def test_every_stage_gives_the_same_bytes_from_its_declared_inputs_alone(toy, tmp_path):
    names = yaml.safe_load((toy.path / "dvc.yaml").read_text())["stages"]
    stages = [Stage(toy, name, tmp_path / name).give() for name in names]
    found, output = run(toy, stages, tmp_path)
    assert list(found) == list(names), output
    left = {name: unknown(name, texts) for name, texts in found.items()}
    assert {name: texts for name, texts in left.items() if texts} == {}
    assert {stage.name: stage.differs() for stage in stages if stage.differs()} == {}


@pytest.mark.parametrize("plant", PLANTS)
def test_an_undeclared_input_is_seen(toy, tmp_path, plant):
    """Planted in gate: something it reads besides its deps."""
    expression, seen = PLANTS[plant]
    old = '"summary": verdict.summary,'
    code = (toy.path / "src/hashtune/stages/gate.py").read_text()
    assert old in code
    shutil.copytree(toy.path / "src", tmp_path / "plants")
    planted = code.replace(old, f'"summary": verdict.summary + str({expression}),')
    (tmp_path / "plants/hashtune/stages/gate.py").write_text(planted)
    stage = Stage(toy, "gate", tmp_path / "gate").give()
    found, output = run(toy, [stage], tmp_path, plants=tmp_path / "plants", code=None)
    texts = [*unknown("gate", found.get("gate", [])), stage.differs() or "", output]
    assert any(seen in text for text in texts), texts
