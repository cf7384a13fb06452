"""What --output of review and report may write over: an older page of the same command alone."""

from pathlib import Path

import pytest

from hashtune.cli.page_file import write_page
from hashtune.errors import InputError


def write(file: Path, page: str = "# Review of b\n") -> None:
    write_page(file, page, start="# Review of ", command="review", option="--output")


def refusal(file: Path) -> str:
    with pytest.raises(InputError) as caught:
        write(file)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.field) == ("unwritable", "--output")
    return finding.message


def test_an_older_page_of_the_command_gives_way(tmp_path: Path) -> None:
    file = tmp_path / "review.md"
    write(file, "# Review of a\n")
    write(file)
    assert file.read_text() == "# Review of b\n"


@pytest.mark.parametrize("text", ["seed: 5\n", "", "# Review"])
def test_any_other_file_stays(text: str, tmp_path: Path) -> None:
    """Planted: the spec's own file, named by mistake."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert refusal(file) == "is there and is no page of hashtune review"
    assert file.read_text() == text


def test_folders_and_what_lies_below_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert refusal(tmp_path) == "is there and is no page of hashtune review"
    assert refusal(tmp_path / "file/x.md") == f"{tmp_path / 'file'} is no folder"
    assert refusal(tmp_path / "none/x.md") == f"{tmp_path / 'none'} is no folder"
    assert not (tmp_path / "none").exists()
