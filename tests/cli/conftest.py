"""A project in which the real tokenize and pack stages ran on a synthetic base."""

from pathlib import Path

import pytest
import yaml

from hashtune import writers
from hashtune.records import conversation_schema
from hashtune.spec.load import read_params
from hashtune.stages import pack, tokenize
from hashtune.store.loader import resolve
from hashtune.store.manifest import Source, manifest_json
from hashtune.store.synthetic import CHAT_TEMPLATE

EVIL = "<script>alert(1)</script>\x1b[31m"


def talk(question: str, answer: str) -> str:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return writers.canonical_json(messages, indent=None)


def conversations(name: str, *messages: str) -> list[dict]:
    return [
        {"id": f"{name}{n}", "source": "toy", "line": n, "group": None, "messages": text}
        for n, text in enumerate(messages, 1)
    ]


def write_params(root: Path) -> None:
    params = read_params(root / "params.yaml")
    params["data"] |= {"max_seq_len": 64, "over_length": "drop", "packing": True}
    params["data"]["sources"] = [
        {**params["data"]["sources"][0], "name": "toy", "uri": "toy.jsonl", "format": "jsonl"}
    ]
    params["tokenizer"] |= {
        "chat_template": "base",
        "sha256": writers.sha256_bytes(CHAT_TEMPLATE.encode()),
    }
    params["batch"] |= {"micro": 2, "grad_accum": 1, "world_size": 1}
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")


@pytest.fixture(scope="session")
def outputs(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A project folder in which tokenize and pack ran, and its own store."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HASHTUNE_HOME", str(folder / "home"))
        patch.chdir(folder)
        for name in ("conf/config.yaml", "dvc.yaml"):
            writers.write_text(Path(name), "")
        write_params(root)
        source = Source(kind="synthetic", repo="tiny", revision="0", file=None, sha256=None)
        manifest = resolve(source, name="tiny", say=lambda text: None)
        writers.write_json(Path("build/base/manifest.json"), manifest_json(manifest))
        train = [talk("hi", "yes"), talk(EVIL, "no"), talk("x", "Water. " * 60), talk("a", "b")]
        text = writers.canonical_json([{"role": "text", "content": "Ice melts."}], indent=None)
        for name, texts in (("train", train), ("eval", [talk("e", "f"), text])):
            rows = conversations(name, *texts)
            writers.write_parquet(
                Path(f"build/prepare/{name}.parquet"), rows, conversation_schema()
            )
        blank = {"id": "z", "source": "toy", "line": 2, "reason": "blank", "detail": "output"}
        other = {**blank, "source": "replay", "line": 1, "reason": "replay_share"}
        writers.write_jsonl(Path("build/prepare/ledger.jsonl"), [blank, other])
        writers.write_bytes(Path("toy.jsonl"), b'{"output": "x"}\n{"output": " \x1b\xff"}\r\n')
        tokenize.run()
        pack.run()
    return folder
