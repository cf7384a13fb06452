"""The reader of W&B's offline files; the packages themselves are run by the bench."""

from types import ModuleType

import pytest

HEAD, BLOCK = b"\0" * 7, 32768


@pytest.fixture(scope="module")
def bench(script) -> ModuleType:
    """The script as a module."""
    return script("trackers")


def part(kind: int, data: bytes) -> bytes:
    """Checksum (not read), length, kind, data."""
    return b"\0" * 4 + len(data).to_bytes(2, "little") + bytes([kind]) + data


def test_whole_records_and_those_over_two_blocks_are_read(bench):
    first = BLOCK - len(HEAD) - 8 - 7  # a record of one byte before it, and its own head
    log = HEAD + part(1, b"a") + part(2, b"b" * first)
    assert len(log) == BLOCK
    log += part(4, b"c") + part(1, b"d")
    assert bench.log_records(log) == [b"a", b"b" * first + b"c", b"d"]


def test_the_rest_of_a_block_without_room_for_a_head_is_passed_over(bench):
    log = HEAD + part(1, b"a" * (BLOCK - len(HEAD) - 7 - 3)) + b"\0" * 3 + part(1, b"b")
    assert bench.log_records(log)[1:] == [b"b"]


def test_a_record_that_a_kill_cut_is_left_out(bench):
    log = HEAD + part(1, b"a") + part(1, b"bcd")[:-1]
    assert bench.log_records(log) == [b"a"]


def test_every_point_is_expected_once(bench):
    assert len(bench.EXPECTED) == len(set(bench.EXPECTED)) == 9
