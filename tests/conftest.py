"""Settings of the whole suite: no hub, one thread, no state outside temporary folders."""

import os
import sys
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

# The suite draws the same examples every time: it is red for what a commit changed, not by luck.
# New draws are made by `make explore`.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository root."""
    return ROOT


@pytest.fixture(scope="session")
def script(root: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Import a script of bench/ by name."""
    before = list(sys.path)
    sys.path.insert(0, str(root / "bench"))
    yield import_module
    sys.path[:] = before


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's store."""
    monkeypatch.setenv("HASHTUNE_HOME", str(tmp_path_factory.getbasetemp() / "home"))


ALLOWED_SKIPS = ("no GPU", "no network service", "../shared is absent")
if "CI" not in os.environ:  # .ci/run installs one
    ALLOWED_SKIPS += ("no browser",)


class SkipRule:
    """Every skip is printed with its reason; only the reasons of ALLOWED_SKIPS are good ones."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a skip whose reason is not allowed."""
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if not reason.startswith(ALLOWED_SKIPS):
                self.refused.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, object]:
        """A module skipped as a whole is an error: parallel runs would not even print it."""
        report = yield
        if report.skipped:
            report.outcome = "failed"
            report.longrepr = f"skip tests, not the module {report.nodeid}: it would be silent"
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Turn the run red."""
        if self.refused:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which skips turned it red."""
        for line in self.refused:
            terminalreporter.write_line(f"skip not allowed: {line}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Register the rule."""
    config.pluginmanager.register(SkipRule(), "skip-rule")
