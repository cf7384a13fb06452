"""One direction of imports: a room uses only rooms below it."""

import ast
from pathlib import Path

import pytest

# top to bottom; rooms of one line may not use each other unless ALLOWED says so
LEVELS = (
    {"cli"},
    {"stages"},
    {"frame"},
    {"memory"},
    {"report"},
    {"training", "evaluation"},
    {"review"},
    {"store", "lineage"},
    {"data", "chat", "packing", "inspection"},
    {"spec"},
    {
        *("records", "writers", "folders", "errors", "processes", "parent", "parts"),
        *("strict_json", "spelling"),
    },
)
ALLOWED = {
    ("writers", "errors"),
    ("writers", "folders"),
    ("records", "errors"),
    ("strict_json", "spelling"),
}


def level(room: str) -> int:
    return next(number for number, rooms in enumerate(LEVELS) if room in rooms)


def violations(file: Path, src: Path) -> list[str]:
    room = file.relative_to(src / "hashtune").parts[0].removesuffix(".py")
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] != "hashtune" or len(parts) < 2:
                continue
            other = parts[1]
            if other != room and level(other) <= level(room) and (room, other) not in ALLOWED:
                found.append(f"{file.name}: {room} uses {other}")
    return found


def test_rooms_use_only_rooms_below(root):
    src = root / "src"
    files = [f for f in (src / "hashtune").rglob("*.py") if f.name != "__init__.py"]
    assert len(files) > 50
    assert [v for file in files for v in violations(file, src)] == []


def test_an_upward_import_is_seen(tmp_path):
    """Planted: data using training."""
    folder = tmp_path / "hashtune/data"
    folder.mkdir(parents=True)
    (folder / "planted.py").write_text("from hashtune.training.loss import CHUNK\n")
    assert violations(folder / "planted.py", tmp_path) == ["planted.py: data uses training"]


@pytest.mark.parametrize("word", ["pickle", "trust_remote_code=True", "torch.load("])
def test_nothing_unsafe_is_loaded(root, word):
    for file in (root / "src").rglob("*.py"):
        code = ast.unparse(ast.parse(file.read_text(encoding="utf-8")))
        if word == "pickle":
            assert "import pickle" not in code, file
        else:
            assert word not in code.replace(" ", ""), file
