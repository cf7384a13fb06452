"""The scripts of bench/ as modules."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def script(root) -> Iterator[Callable[[str], ModuleType]]:
    """Import a script by name."""
    before = list(sys.path)
    sys.path.insert(0, str(root / "bench"))
    yield import_module
    sys.path[:] = before
