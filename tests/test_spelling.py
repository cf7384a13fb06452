"""Numbers keep their spelling through JSON, copies and text; plain ones stay plain."""

import copy
import json
import pickle

import pytest

from hashtune import spelling
from hashtune.strict_json import StrictJsonError, parse_strict

ODD = "[1e5,1.10,0.1e-7,-0,1E+2,0.10,-0.0e0,123456789012345678901234.0]"
PLAIN = "[1,-1,1.5,1e-07,1e+16,0.0,-0.0,12345678901234567890123]"


@pytest.mark.parametrize("text", [ODD, PLAIN, '{"a":{"b":[1.10,"1.10",null,true]}}'])
def test_a_text_is_written_as_it_was_read(text):
    for read in (parse_strict, spelling.loads):
        value = read(text)
        assert spelling.dumps(value, separators=(",", ":")) == text
        assert spelling.dumps(copy.deepcopy(value), separators=(",", ":")) == text
        moved = pickle.loads(pickle.dumps(value))  # noqa: S301  our own
        assert spelling.dumps(moved, separators=(",", ":")) == text
        assert value == json.loads(text)


def test_python_prints_them_otherwise():
    """The fault that this module is for: without it these values change."""
    changed = json.dumps(parse_strict(ODD), separators=(",", ":"))
    assert changed.startswith("[100000.0,1.1,1e-08,0,100.0,0.1,-0.0,1.2345678901234569e+23]")


def test_plain_numbers_are_plain():
    assert {type(value) for value in parse_strict(PLAIN)} == {int, float}
    value = {"a": [1, 2.5]}
    assert spelling.unspelled(value) is value


def test_as_text_as_number_and_unspelled():
    big, minus = parse_strict("[1e5,-0]")
    assert (str(big), f"{big}", repr(minus), f"{big:.1f}") == ("1e5", "1e5", "-0", "100000.0")
    assert big + 1 == 100001.0
    plain = spelling.unspelled({"a": [big, {"b": minus}]})
    assert repr(plain) == "{'a': [100000.0, {'b': 0}]}"


def test_texts_beside_numbers_stay_and_forms_hold():
    value = parse_strict('{"b":"é \\" \\\\ 1e5","a":1e5}')
    assert spelling.dumps(value) == '{"b": "\\u00e9 \\" \\\\ 1e5", "a": 1e5}'
    sorted_ = spelling.dumps(value, sort_keys=True, ensure_ascii=False, indent=1)
    assert sorted_ == '{\n "a": 1e5,\n "b": "é \\" \\\\ 1e5"\n}'


def test_a_number_out_of_range_is_still_refused():
    with pytest.raises(StrictJsonError, match="number out of range"):
        parse_strict("[1e999]")
