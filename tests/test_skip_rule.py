"""The suite's own rule about skips, in one process and in two."""

import pytest


@pytest.fixture(autouse=True)
def _as_at_home(monkeypatch):
    """These tests say themselves whether they are CI."""
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture(params=[(), ("-n", "2")], ids=["one process", "two"])
def outcome(request, pytester, root):
    """Runs pytest, with the suite's conftest, on the source of one test module."""

    def run(source: str) -> tuple[int, str]:
        pytester.makeconftest((root / "tests/conftest.py").read_text(encoding="utf-8"))
        pytester.makepyfile(source)
        done = pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider", *request.param)
        return int(done.ret), done.stdout.str()

    return run


def test_an_allowed_reason_passes_and_is_printed(outcome):
    code, printed = outcome(
        """
        import pytest

        @pytest.mark.skip(reason="no GPU")
        def test_one(): ...
        """
    )
    assert code == 0
    assert "no GPU" in printed


def test_any_other_reason_turns_the_run_red(outcome):
    code, printed = outcome(
        """
        import pytest

        @pytest.mark.skip(reason="later")
        def test_one(): ...
        """
    )
    assert code == 1
    assert (
        "skip not allowed: test_any_other_reason_turns_the_run_red.py::test_one: later" in printed
    )


def test_a_module_skipped_as_a_whole_turns_the_run_red(outcome):
    code, printed = outcome(
        """
        import pytest

        pytest.skip("no GPU", allow_module_level=True)
        """
    )
    assert code != 0
    assert "skip tests, not the module" in printed


@pytest.mark.parametrize(("ci", "expected"), [(None, 0), ("1", 1)])
def test_a_browser_may_be_missing_at_home_only(outcome, monkeypatch, ci, expected):
    if ci:
        monkeypatch.setenv("CI", ci)
    code, _ = outcome(
        """
        import pytest

        @pytest.mark.skip(reason="no browser: install one")
        def test_one(): ...
        """
    )
    assert code == expected
