"""The code closure: a changed import changes the hash, a comment or docstring does not."""

from pathlib import Path

import pytest

from hashtune.errors import InputError
from hashtune.lineage.code import closure, environment_findings, foreign_code, packages, read_lock

FILES = {
    "hashtune/__init__.py": '"""Package."""\n',
    "hashtune/stages/__init__.py": '"""Stages."""\n',
    "hashtune/stages/one.py": (
        "from hashtune.near import f\n\n"
        "def run():\n    from hashtune import lazy\n    return lazy\n"
    ),
    "hashtune/near.py": '"""Doc."""\nimport numpy\n\ndef f(x):\n    """Doc."""\n    return x + 1\n',
    "hashtune/lazy.py": "import safetensors.torch\n",
    "hashtune/unrelated.py": "import torch\n",
}


@pytest.fixture
def src(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_closure_holds_lazy_imports_and_parents_but_nothing_else(src):
    found = closure("hashtune.stages.one", src)
    assert sorted(found.modules) == [
        "hashtune",
        "hashtune.lazy",
        "hashtune.near",
        "hashtune.stages",
        "hashtune.stages.one",
    ]
    assert found.imports == {"numpy", "safetensors"}


@pytest.mark.parametrize("module", ["near", "lazy", "stages/one"])
def test_every_module_of_the_closure_counts(src, module):
    before = closure("hashtune.stages.one", src)
    file = src / f"hashtune/{module}.py"
    file.write_text(file.read_text() + "CHANGED = 1\n")
    assert closure("hashtune.stages.one", src) != before


def test_comments_docstrings_and_unrelated_modules_do_not_count(src):
    before = closure("hashtune.stages.one", src)
    near = src / "hashtune/near.py"
    near.write_text(near.read_text().replace('"""Doc."""', '"""Other words."""') + "# a remark\n")
    (src / "hashtune/unrelated.py").write_text("import torch\nX = 2\n")
    assert closure("hashtune.stages.one", src) == before
    near.write_text(near.read_text().replace('    """Other words."""\n', ""))
    assert closure("hashtune.stages.one", src) == before


def test_packages_bring_what_they_need_but_not_what_only_prints():
    lock = {"safetensors": "1", "numpy": "2", "torch": "3", "tqdm": "4", "transformers": "5"}
    assert packages({"numpy"}, lock) == {"numpy": "2"}
    counted = packages({"transformers"}, lock)
    assert counted["numpy"] == "2"
    assert "tqdm" not in counted


def test_lock_lines_and_an_empty_lock():
    text = "Foo_Bar==1.2  # why\n    # via x\nbaz[extra]==3.0+cpu ; marker\n"
    assert read_lock(text, file="lock") == {"foo-bar": "1.2", "baz": "3.0+cpu"}
    with pytest.raises(InputError, match="pins nothing"):
        read_lock("# nothing\n", file="lock")


def test_a_differing_environment_is_named():
    (finding,) = environment_findings(["numpy"], {"numpy": "0.0.1"})
    assert finding.rule == "environment-differs"
    assert "numpy" in finding.message and "0.0.1" in finding.message


def test_a_local_version_label_fits_its_public_version(monkeypatch):
    monkeypatch.setattr("hashtune.lineage.code.metadata.version", lambda _name: "2.13.0+cpu")
    assert environment_findings(["torch"], {"torch": "2.13.0"}) == []
    assert environment_findings(["torch"], {"torch": "2.13.1"}) != []


def test_code_of_this_checkout_is_not_foreign(root):
    assert foreign_code(root, fix="") == []


def test_a_clone_inside_this_one_has_code_of_its_own(root):
    """Planted: the main workspace's code in a temporary clone below it (`dvc exp run --temp`)."""
    (finding,) = foreign_code(root / "tests", fix="mend it")
    said = f"the code that runs is {root / 'src/hashtune'}, outside this checkout"
    assert (finding.rule, finding.message, finding.fix) == ("foreign-code", said, "mend it")
