"""hashtune chat before any model is loaded: what is missing is named as the method calls it."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from hashtune import writers
from hashtune.cli import chat
from hashtune.cli.main import main
from hashtune.spec.load import read_params


@pytest.fixture
def project(outputs: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The base of the toy project, and no adapter."""
    monkeypatch.setenv("HASHTUNE_HOME", str(outputs / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("conf/config.yaml", "dvc.yaml"):
        writers.write_text(Path(name), "")
    for name in ("params.yaml", "build/base/manifest.json"):
        writers.write_bytes(Path(name), (outputs / name).read_bytes())
    return tmp_path


def full() -> None:
    params = read_params()
    params["method"] = dict.fromkeys(params["method"]) | {"type": "full"}
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["chat", *arguments]) == 2
    error = capsys.readouterr().err
    return [line.strip() for line in error.split("\n") if line.startswith("  ")]


def test_a_folder_that_is_not_there(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "hi") == [
        "build/train/adapter: does not exist [no-adapter]",
        "fix: dvc repro train, or name a folder that holds an adapter",
    ]
    full()
    assert refused(capsys, "hi", "--adapter", "nosuch") == [
        "nosuch: does not exist [no-adapter]",
        "fix: dvc repro train, or name a folder that holds trained weights",
    ]


def test_a_folder_without_its_files(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under full fine-tuning the missing files are not an adapter's."""
    Path("build/train/adapter").mkdir(parents=True)
    told = refused(capsys, "hi")
    assert [line.split(":")[0] for line in told[::2]] == [
        "build/train/adapter/adapter_model.safetensors",
        "build/train/adapter/adapter_config.json",
    ]
    full()
    told = refused(capsys, "hi")
    assert [line.split(":")[0] for line in told[::2]] == [
        "build/train/adapter/model.safetensors",
        "build/train/adapter/full.json",
    ]
    assert "adapter_model" not in " ".join(told)


def test_bytes_that_are_no_text(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "hi\udcff", "--system", "\udc80")
    assert told[0] == "message: is no text in UTF-8 [not-utf8]"
    assert told[2] == "--system: is no text in UTF-8 [not-utf8]"


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (("adapter_model.safetensors", "adapter_config.json"), "adapter"),
        (("model.safetensors",), "trained"),
    ],
)
def test_the_second_voice_is_named_and_its_answer_is_harmless(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: tuple[str, ...],
    name: str,
) -> None:
    """A folder with trained weights, such as a released one, is taken whatever the spec says."""
    import contextlib

    from hashtune.evaluation import generate, models

    for file in files:
        writers.write_text(project / "mine" / file, "")
    model = SimpleNamespace(disable_adapter=contextlib.nullcontext)
    subject = SimpleNamespace(model=model, template=None, stop_ids=[])
    monkeypatch.setattr(models, "open_subject", lambda *_, **__: subject)
    said = [SimpleNamespace(text="a\n\x1b[31mb\u202e")]
    monkeypatch.setattr(generate, "generate_answers", lambda *_, **__: said)
    assert main(["chat", "hi", "--adapter", "mine"]) == 0
    answer = "a\n\\x1b[31mb\\u{202e}\n"
    assert capsys.readouterr().out == f"    base> {answer}{name:>8}> {answer}"


def test_a_conversation_ends_at_an_empty_line_and_refuses_no_text(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[Any] = [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")]

    def ask(_prompt: str) -> str:
        line = lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return str(line)

    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.setattr(chat, "_missing", lambda *_: [])
    monkeypatch.setattr("hashtune.evaluation.models.open_subject", lambda *_, **__: None)
    assert main(["chat"]) == 2
    assert "you: is no text in UTF-8 [not-utf8]" in capsys.readouterr().err
    lines.append(EOFError())
    assert main(["chat"]) == 0
    lines.append("  ")
    assert main(["chat"]) == 0


def test_an_optional_package_is_not_asked_for(project: Path, root: Path) -> None:
    """What a library says about its kernels when PEFT imports it is no word of ours."""
    code = (
        "import json, logging, sys\n"
        "from hashtune.cli.main import main\n"
        "code = main(['chat', 'hi'])\n"
        "import bitsandbytes.backends.cpu.ops\n"
        "level = logging.getLogger('bitsandbytes.backends.cpu.ops').getEffectiveLevel()\n"
        "print(json.dumps([code, level]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(root / "src"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [2, 40]
    assert "kernels" not in done.stderr
