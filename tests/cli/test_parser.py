"""What argparse refuses is told as every other bad input: field, message, rule and fix."""

import pytest

from hashtune.cli.main import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    first, second, *rest = capsys.readouterr().err.rstrip("\n").split("\n")
    assert (first, second) == ("hashtune: refused, nothing was changed.", "1 finding:")
    return [line.strip() for line in rest]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["inspect", "-n", "x"], "-n: 'x' is no whole number [usage]"),
        (["inspect", "--step", "1.5"], "--step: '1.5' is no whole number [usage]"),
        (["inspect", "--rows", "\x1b[2J"], "--rows: '\\x1b[2J' is no whole number [usage]"),
        (["inspect", "--lengths", "all"], "--lengths: 'all' is no whole number [usage]"),
        (["inspect", "--step"], "--step: expected one argument [usage]"),
        (
            ["inspect", "--rows", "1", "--step", "1"],
            "--step: not allowed with argument --rows [usage]",
        ),
    ],
)
def test_a_value_that_is_none(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert refused(capsys, *arguments) == [told, "fix: hashtune inspect --help"]


def test_names_that_there_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "inspcet") == [
        "COMMAND: there is no 'inspcet' [usage]",
        "fix: did you mean 'inspect'?",
    ]
    assert refused(capsys, "inspect", "--longst") == [
        "hashtune inspect: does not know '--longst' [usage]",
        "fix: did you mean '--longest'?",
    ]
    assert refused(capsys, "inspect", "--split", "evl") == [
        "--split: there is no 'evl' [usage]",
        "fix: did you mean 'eval'?",
    ]
    assert refused(capsys) == [
        "the following arguments are required: COMMAND [usage]",
        "fix: hashtune --help",
    ]
