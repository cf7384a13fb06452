"""hashtune judge: export, fill in, score."""

import csv
import io
import json

import pytest

from hashtune.cli.main import main


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Answers of base and adapter on three items, one of them alike."""
    (tmp_path / "conf").mkdir()
    for name in ("conf/config.yaml", "dvc.yaml"):
        (tmp_path / name).write_text("{}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(root):
    for stage, texts in (("baseline", ["a", "b", "c"]), ("evaluate", ["A", "B", "c"])):
        file = root / f"build/{stage}/task.jsonl"
        file.parent.mkdir(parents=True)
        rows = [
            {"id": f"t{n}", "answer": text, "reference": "r", "scores": {"x": 1.0}}
            for n, text in enumerate(texts)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_from_export_to_score(project, capsys):
    answers(project)
    assert main(["judge", "export"]) == 0
    sheet = project / "build/judge/sheet.csv"
    head, *rows = csv.reader(io.StringIO(sheet.read_text(encoding="utf-8-sig")))
    assert sorted(row[0] for row in rows) == ["t0", "t1"]
    assert main(["judge", "score", str(sheet)]) == 2  # nothing is filled in
    assert capsys.readouterr().err.count("[sheet-row]") == 2
    assert not (project / "reports/judgement.json").exists()
    with sheet.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([head, *([*row[:4], "1" if row[2].isupper() else "2"] for row in rows)])
    assert main(["judge", "score", str(sheet)]) == 0
    assert "won 2, lost 0, 0 ties: no difference can be told (sign test p = 0.5)" in (
        capsys.readouterr().out
    )
    report = json.loads((project / "reports/judgement.json").read_text(encoding="utf-8"))
    assert (report["won"], report["lost"], report["chance"]) == (2, 0, 0.5)
    assert main(["judge", "export"]) == 2  # a judged sheet is not written over
    assert "[sheet-exists]" in capsys.readouterr().err
    assert main(["judge", "export", "--again"]) == 0


def test_what_is_missing_is_said(project, capsys):
    assert main(["judge", "export"]) == 2
    assert "[no-answers]" in capsys.readouterr().err
    assert main(["judge", "score", "nowhere.csv"]) == 2
    assert "nowhere.csv: does not exist [no-sheet]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "key",
    [
        "{",
        "[]",
        '{"adapter_sha256": null, "items": {"t0": 1}, "seed": 0}',
        '{"adapter_sha256": null, "items": {"t0": {"adapter": 3, "sha256": ""}}, "seed": 0}',
        '{"items": {}, "seed": 0}',
    ],
)
def test_a_key_that_was_edited_or_cut_is_refused(project, capsys, key):
    answers(project)
    assert main(["judge", "export"]) == 0
    (project / "build/judge/key.json").write_text(key, encoding="utf-8")
    assert main(["judge", "score", "build/judge/sheet.csv"]) == 2
    assert "build/judge/key.json: is not the key that was exported" in capsys.readouterr().err


def test_a_sheet_of_other_bytes_is_refused(project, capsys):
    answers(project)
    assert main(["judge", "export"]) == 0
    sheet = project / "build/judge/sheet.csv"
    sheet.write_bytes(b"id,question\xff\n")
    assert main(["judge", "score", str(sheet)]) == 2
    assert "is no UTF-8 [not-utf8]" in capsys.readouterr().err
    sheet.write_text('id,"question\n' + "x" * 200_000, encoding="utf-8")  # a quote stays open
    limit = csv.field_size_limit(128 * 1024)  # of the process; readers of data have a longer one
    try:
        assert main(["judge", "score", str(sheet)]) == 2
    finally:
        csv.field_size_limit(limit)
    assert "is no CSV: field larger than field limit" in capsys.readouterr().err
