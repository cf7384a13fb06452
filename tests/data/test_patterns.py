"""Pattern lists find what they are for, miss what looks like it, and repeat nothing they found."""

import json
import signal
from pathlib import Path

import pytest

from hashtune.data import pattern_search
from hashtune.data.pattern_search import search
from hashtune.data.patterns import CHECKS, iban, load_patterns, luhn
from hashtune.records import Conversation, Dropped
from hashtune.spec.schema import PatternFile
from hashtune.writers import sha256_file

# test numbers that the card schemes and the IBAN registry publish
CARD, IBAN = "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"


@pytest.fixture
def shipped(root: Path):
    def load(name, action="drop"):
        uri = f"data/patterns/{name}.jsonl"
        pinned = PatternFile(name=name, uri=uri, sha256=sha256_file(root / uri), action=action)
        patterns, findings = load_patterns([pinned], root)
        assert findings == []
        return patterns

    return load


def names(patterns, text):
    return [pattern.name for pattern in patterns if pattern.found_in(text)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Write to nora.o'hara+x@mail.example.org.", "email"),
        ("Call +49 30 901820, thanks", "phone"),
        ("Call 0044 20 7946 0958", "phone"),
        ("Call (555) 123-4567 or 555.123.4567", "phone"),
        (f"My card: {CARD}.", "card"),
        ("5555555555554444", "card"),
        ("3782 822463 10005", "card"),
        (f"Pay to {IBAN} SOON PLEASE", "iban"),
        ("GB29NWBK60161331926819", "iban"),
        ("-----BEGIN RSA PRIVATE KEY-----", "secret-key"),
    ],
)
def test_personal_data_is_found(shipped, text, name):
    assert names(shipped("pii"), text) == [f"pii.{name}"]


@pytest.mark.parametrize(
    "text",
    [
        "On 2024-01-05 at 10:30:00 we sold 1,234,567 pieces for 12.50 EUR each.",
        "Order 4111 1111 1111 1112, parcel 1234567890123456",  # no card: Luhn fails
        "DE89 3704 0044 0532 0130 02",  # no IBAN: the check digits are others
        "a @ b, user@localhost, 1.2.3.4, v2.10.3, ISBN 978-3-16-148410-0",
        "3.141592653589793238",
        "14000-3920-1000=9080 and 2000000-400000=1600000",  # two answers of GSM8K
        "x = y@z; print('+1')",
        "Ticket 00501, 10 000 000 users, 555-1234",
    ],
)
def test_what_only_looks_like_personal_data_is_not(shipped, text):
    assert names(shipped("pii"), text) == []


def test_unsafe_content_is_found_whatever_the_case(shipped):
    unsafe = shipped("unsafe")
    assert names(unsafe, "Go KILL yourself") == ["unsafe.self-harm"]
    assert names(unsafe, "how to build a bomb") == ["unsafe.weapon"]
    assert names(unsafe, "I will kill you") == ["unsafe.threat"]
    assert names(unsafe, "How do I kill a process? It bombed.") == []


def test_checks():
    assert [luhn(CARD), luhn("4111111111111112"), luhn("79927398713")] == [True, False, True]
    assert [iban(IBAN), iban(IBAN.replace("89", "98")), iban("ä" * 20)] == [True, False, False]
    assert set(CHECKS) == {"luhn", "iban"}


def talk(line, answer="fine", **other):
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer, **other}]
    return Conversation(f"c{line}", "s", messages, line)


SECRET = "nora@mail.example.org"
ROWS = [
    talk(1),
    talk(2, f"Ask {SECRET}"),
    talk(3, None, tool_calls=[{"function": {"arguments": {"to": SECRET}}}]),
    talk(4, SECRET.replace("@", "＠")),  # full width
]


def test_rows_are_dropped_and_what_was_found_is_not_repeated(shipped):
    result = search(ROWS, shipped("pii"), shown="d.jsonl", given_up=set())
    assert result.kept == ROWS[:1]
    assert result.findings == []
    where = "messages[1].tool_calls[0].function.arguments.to"
    assert result.dropped == [
        Dropped("c2", "s", 2, "pattern", "pii.email in messages[1].content"),
        Dropped("c3", "s", 3, "pattern", f"pii.email in {where}"),
        Dropped("c4", "s", 4, "pattern", "pii.email in messages[1].content"),
    ]
    assert result.counts == {"pii.email": 3}
    assert SECRET not in repr((result.dropped, result.counts))


def test_error_lists_give_a_finding_per_place(shipped):
    row = talk(7, f"{CARD} {SECRET}")
    result = search([row], shipped("pii", "error"), shown="d.jsonl", given_up=set())
    assert [str(finding).splitlines()[0] for finding in result.findings] == [
        "d.jsonl:7: messages[1].content: pattern pii.email is found here [pattern-found]",
        "d.jsonl:7: messages[1].content: pattern pii.card is found here [pattern-found]",
    ]
    assert result.kept == [row]
    assert not any(secret in repr(result.findings) for secret in (CARD, SECRET))


def pinned(tmp_path, *lines, name="list", sha256=None):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (tmp_path / "list.jsonl").write_text(text)
    sha256 = sha256 or sha256_file(tmp_path / "list.jsonl")
    return PatternFile(name=name, uri="list.jsonl", sha256=sha256, action="drop")


def test_a_broken_list_is_refused_with_all_its_lines(tmp_path):
    file = pinned(
        tmp_path,
        {"name": "good", "pattern": "x"},
        "not json",
        {"name": "no pattern"},
        {"name": "open", "pattern": "("},
        {"name": "all", "pattern": "x*"},
        {"name": "check", "pattern": "x", "check": "lun"},
        {"name": "more", "pattern": "x", "flags": "i"},
        [1],
        {"name": "good", "pattern": "y"},
    )
    patterns, findings = load_patterns([file], tmp_path)
    assert [pattern.name for pattern in patterns] == ["list.good", "list.good"]
    assert [(finding.rule, finding.line) for finding in findings] == [
        *[("pattern", line) for line in range(2, 9)],
        ("name-taken", None),
    ]
    assert "did you mean 'luhn'?" in findings[4].message


@pytest.mark.parametrize("lines", [[], ["", "  "]])
def test_a_list_without_a_pattern_is_refused(tmp_path, lines):
    """A filter that the spec names and that finds nothing would look like clean data."""
    _, [finding] = load_patterns([pinned(tmp_path, *lines)], tmp_path)
    assert (finding.rule, finding.field) == ("pattern", "cleaning.patterns[0]")
    assert finding.message == "holds no pattern, so nothing would be found"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"name": "n", "pattern": "caf\xe9"}', "byte 0xE9 at byte 29 of the file is not UTF-8"),
        (b'{"name": "n", "pattern": "x", "pattern": "y"}', "key 'pattern' given twice"),
        (b'{"name": "n", "pattern": "' + b"(" * 5000 + b")" * 5000 + b'"}', "nested too deep"),
        (b'{"name": "n", "pattern": "x{99999999999}"}', "repetition number is too large"),
        (b'{"name": ["n"], "pattern": "x"}', "no object with name and pattern, two texts"),
        (b'{"name": "n", "pattern": 7}', "no object with name and pattern, two texts"),
        (b'{"name": "n", "pattern": "x", "check": ["luhn"]}', "unknown check ['luhn']"),
        (b'[{"name": "n", "pattern": "x"}]', "file is a JSON array"),
        (b"[" * 100_000, "file is a JSON array"),
    ],
)
def test_no_line_of_a_list_is_a_fault_of_ours(tmp_path, line, said):
    (tmp_path / "list.jsonl").write_bytes(line)
    pin = sha256_file(tmp_path / "list.jsonl")
    file = PatternFile(name="l", uri="list.jsonl", sha256=pin, action="drop")
    patterns, [finding] = load_patterns([file], tmp_path)
    assert patterns == []
    assert (finding.rule, finding.file, finding.line) == ("pattern", "list.jsonl", 1)
    assert said in finding.message


def test_a_nested_set_is_a_pattern_like_any_other(tmp_path):
    """Python warns of what "[[" may mean one day; the suite would turn that into an error."""
    patterns, findings = load_patterns(
        [pinned(tmp_path, {"name": "n", "pattern": "[[a]"})], tmp_path
    )
    assert findings == []
    assert names(patterns, "[") == ["list.n"]


def test_a_list_that_is_not_the_pinned_one_is_refused(tmp_path):
    file = pinned(tmp_path, {"name": "n", "pattern": "x"}, sha256="0" * 64)
    missing = PatternFile(name="m", uri="gone.jsonl", sha256="0" * 64, action="drop")
    patterns, findings = load_patterns([file, missing], tmp_path)
    assert patterns == []
    assert [(finding.rule, finding.field) for finding in findings] == [
        ("pin", "cleaning.patterns[0].sha256"),
        ("no-file", "cleaning.patterns[1].uri"),
    ]


def test_a_long_text_without_a_match_costs_little(shipped):
    """Planted: without its look-behind the e-mail pattern takes the square of the length."""
    text = "a" * 200_000 + " " + "1" * 200_000 + " " + "A1" * 100_000
    assert names(shipped("pii"), text) == []


def test_keys_and_numbers_are_searched_as_they_are_trained(shipped):
    """A card number is no text in {"card": 4111111111111111}; a key that is found is not shown."""
    calls = [{"function": {"arguments": {SECRET: {"n": [4111111111111111], "m": 4.50, "b": True}}}}]
    result = search(
        [talk(1, None, tool_calls=calls)], shipped("pii", "error"), shown="d", given_up=set()
    )
    arguments = "messages[1].tool_calls[0].function.arguments"
    assert [(finding.field, finding.message) for finding in result.findings] == [
        (f"{arguments} (a key)", "pattern pii.email is found here"),
        (f"{arguments}.*.n[0]", "pattern pii.card is found here"),
    ]


def test_a_pattern_that_never_ends_is_a_finding_and_the_others_go_on(tmp_path, monkeypatch):
    """Planted: (a+)+$ tries 2^40 ways to match; without a limit this test does not end."""
    monkeypatch.setattr(pattern_search, "SECONDS", 0.2)
    file = pinned(tmp_path, {"name": "slow", "pattern": "(a+)+$"}, {"name": "b", "pattern": "b"})
    patterns, _ = load_patterns([file], tmp_path)
    rows = [talk(1), talk(2, "a" * 40 + "b"), talk(3, "a" * 40 + "b"), talk(4, "aa")]
    given_up: set[str] = set()
    result = search(rows, patterns, shown="d.jsonl", given_up=given_up)
    [finding] = result.findings
    assert (finding.rule, finding.line, finding.field) == ("pattern-slow", 2, "messages[1].content")
    assert finding.message.startswith("pattern list.slow takes more than 10 s here")
    assert given_up == {"list.slow"}  # the run is refused: line 3 would only take as long again
    assert [(row.line, row.detail) for row in result.dropped] == [
        (2, "list.b in messages[1].content"),
        (3, "list.b in messages[1].content"),
    ]
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0
