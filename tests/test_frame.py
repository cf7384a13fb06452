"""The frame of every stage: exit codes, foreign code, progress, reports."""

import json
import subprocess
import sys

import pytest

from hashtune import frame
from hashtune.errors import Finding, Findings, InputError, Stopped, nearest, render


def ending(monkeypatch, run):
    monkeypatch.setattr(frame, "_refuse_foreign_code", lambda: None)
    monkeypatch.setattr(frame, "die_with_parent", lambda: None)
    monkeypatch.setattr(frame, "_refuse_changed_code", lambda _stage: None)
    with pytest.raises(SystemExit) as caught:
        frame.main("pack", run)
    return caught.value.code


def test_exit_codes(monkeypatch, capsys):
    def refuse():
        raise InputError(Finding("rule", "is bad", file="f", line=3, field="x.y", fix="mend it"))

    def stop():
        raise Stopped("SIGTERM after step 3")

    def fault():
        raise KeyError("ours")

    def interrupt():
        raise KeyboardInterrupt

    assert ending(monkeypatch, lambda: None) == 0
    assert ending(monkeypatch, interrupt) == 130
    assert ending(monkeypatch, refuse) == 2
    text = capsys.readouterr().err
    assert "f:3: x.y: is bad [rule]" in text
    assert "fix: mend it" in text
    assert "Traceback" not in text
    assert ending(monkeypatch, stop) == 75
    assert ending(monkeypatch, fault) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_folder_that_was_removed_is_no_fault(monkeypatch, capsys, tmp_path):
    def write():
        (tmp_path / "run/build/curve.tsv").open("a")

    monkeypatch.chdir(tmp_path)
    assert ending(monkeypatch, write) == 75
    assert "This folder was removed" in capsys.readouterr().err
    (tmp_path / "dvc.yaml").touch()
    assert ending(monkeypatch, write) == 70


def test_code_of_another_checkout_is_refused(tmp_path, root):
    done = subprocess.run(
        [sys.executable, "-m", "hashtune.stages.gate"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "outside this checkout" in done.stderr


def test_first_twenty_findings_in_full_the_rest_counted():
    text = render([Finding(f"r{i % 2}", f"number {i}") for i in range(25)])
    assert text.startswith("25 findings:")
    assert "number 19" in text and "number 20" not in text
    assert "and 3 more of [r0]" in text and "and 2 more of [r1]" in text


def test_findings_are_kept_up_to_twenty_and_counted_beyond():
    every = [Finding(f"r{i % 2}", f"number {i}") for i in range(25)]
    train, both = Findings(), Findings()
    train.add(every[:23])
    train.add(every[23:])
    assert len(train.shown) == 20 and train.more == {"r0": 3, "r1": 2}
    assert str(train.error()) == render(every)
    both.add(train.shown, train.more)
    both.add(every[:1])
    assert str(both.error()).startswith("26 findings:") and "4 more of [r0]" in str(both.error())
    assert not Findings()


def test_nearest_name():
    assert nearest("lrr", ["lr", "name"]) == "did you mean 'lr'?"
    assert nearest("zzz", ["lr", "name"]) == "known: lr, name"


def test_progress_speaks_only_after_two_seconds(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 1.0, 12.0, 13.0])
    monkeypatch.setattr(frame.time, "monotonic", lambda: next(clock))
    assert list(frame.progress([1, 2, 3, 4], total=4, label="rows")) == [1, 2, 3, 4]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("  rows [") and "2/4, about 12 s left" in line


def test_machine_figures_name_the_output_they_belong_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").write_bytes(b"abc")
    frame.write_machine("pack", {"seconds": 1.5}, belongs_to=frame.Path("out"))
    record = json.loads((tmp_path / "reports/machine/pack.json").read_text())
    assert record["output_sha256"].startswith("ba7816bf")
    assert (record["output"], record["seconds"]) == ("out", 1.5)


def test_what_a_kill_left_of_a_report_goes_with_the_next_one(tmp_path, monkeypatch):
    """SIGKILL inside write_bytes leaves .NAME.x.tmp beside the report."""
    monkeypatch.chdir(tmp_path)
    for name in (".pack.json.a1b2c3d4.tmp", ".plan.json.a1b2c3d4.tmp"):
        (tmp_path / "reports").mkdir(exist_ok=True)
        (tmp_path / "reports" / name).write_text("{")
    frame.write_report("pack", {"rows": 1})
    names = sorted(path.name for path in (tmp_path / "reports").iterdir())
    assert names == [".plan.json.a1b2c3d4.tmp", "pack.json"]  # the other is its own stage's
