"""The whole assembly on small files: every row is kept or in the ledger, leaks are refused."""

from hypothesis import given
from hypothesis import strategies as st

from hashtune.data.assemble import Settings, assemble
from hashtune.data.leakage import Item
from hashtune.data.row_rules import RowRules
from hashtune.data.schemas import parse_rows
from hashtune.data.sources import DataFile, Loaded
from hashtune.records import Dropped
from hashtune.spec.schema import Balance, Filters, NearDuplicates, Normalise

NO_LIMITS = Filters(**dict.fromkeys(Filters.model_fields))
AS_WRITTEN = Normalise(newlines="none", unicode="none", whitespace="none")
OFF = NearDuplicates(threshold=None, shingle=3)
PLAIN = Settings(
    rules=RowRules(AS_WRITTEN, NO_LIMITS, []),
    deduplicate=True,
    near_duplicates=OFF,
    balance=Balance(by=None, max_rows=None),
    weights={"a": 1.0},
    max_rows={"a": None},
    replay_share=0.0,
    fractions={"eval": None, "test": None},
    held_out_rows={"eval": None, "test": None},
    leakage_ngram=4,
    leakage_near=OFF,
    leakage_groups="error",
    leakage_max_share=0.0,
)


def changed(**settings) -> Settings:
    values = {name: getattr(PLAIN, name) for name in PLAIN.__slots__}
    return Settings(**{**values, **settings})


def loaded(name, texts, groups=None) -> Loaded:
    rows = [
        {
            "messages": [{"role": "user", "content": t}, {"role": "assistant", "content": "a"}],
            "group": groups[i] if groups else None,
        }
        for i, t in enumerate(texts)
    ]
    numbered = enumerate(rows, start=1)
    parsed = parse_rows(numbered, schema="messages", source=name, shown=name)
    file = DataFile(name, f"data/{name}.jsonl", None, "messages", f"data.{name}")
    return Loaded(file, len(rows), parsed.conversations)


def files(**texts) -> dict[str, Loaded]:
    return {name: loaded(name, of) for name, of in texts.items()}


def test_files_of_their_own():
    given_files = files(a=["one", "two", "One", "three"], eval=["e", "E e"], test=["t"])
    prepared = assemble(given_files, {"s": [Item("s", 1, ["q"])]}, PLAIN)
    assert prepared.findings == []
    assert {name: sorted(row.line for row in rows) for name, rows in prepared.splits.items()} == {
        "train": [1, 2, 4],
        "eval": [1, 2],
        "test": [1],
    }
    assert [(row.source, row.line, row.reason) for row in prepared.ledger] == [
        ("a", 3, "duplicate")
    ]
    assert prepared.report["sources"]["a"] == {
        "file": "data/a.jsonl",
        "rows": 4,
        "kept": {"train": 3, "eval": 0, "test": 0},
        "dropped": {"duplicate": 1},
        "repeated": 0,
        "extra_fields": {},
        "notes": [],
    }
    assert prepared.report["splits"] == {"train": 3, "eval": 2, "test": 1}
    assert set(prepared.report["leakage"]) == {"eval", "test", "suite_s"}


def test_duplicates_stay_when_asked_and_get_ids_of_their_own():
    given_files = files(a=["one", "one"], eval=["e", "e"], test=["t"])
    prepared = assemble(given_files, {}, changed(deduplicate=False))
    [first, second] = sorted(row.id for row in prepared.splits["train"])
    assert second == f"{first}#2"
    assert prepared.report["duplicates"] == {
        "train_eval": 0,
        "train_test": 0,
        "eval_test": 0,
        "train": 1,
        "eval": 1,
        "test": 0,
    }


def test_planted_leaks_are_refused_not_removed():
    given_files = files(a=["is this a leak or not", "x"], eval=["e"], test=["X ", "y"])
    suites = {"s": [Item("data/s.jsonl", 7, ["Well: is this a leak?"])]}
    prepared = assemble(given_files, suites, PLAIN)
    assert [(f.rule, f.file, f.line) for f in prepared.findings] == [
        ("leakage", None, None),
        ("leaked-item", "data/test.jsonl", 1),
        ("leakage", None, None),
        ("leaked-item", "data/s.jsonl", 7),
    ]
    assert len(prepared.splits["train"]) == 2
    allowed = assemble(given_files, suites, changed(leakage_max_share=1.0))
    assert allowed.findings == []
    assert allowed.report["leakage"]["test"] == {
        "items": 2,
        "exact": 1,
        "ngram": 0,
        "near": 0,
        "share": 0.5,
        "examples": [
            {
                "file": "data/test.jsonl",
                "line": 1,
                "train_file": "data/a.jsonl",
                "train_line": 2,
                "how": "exact",
                "shared": "x",
            }
        ],
    }


def test_replay_is_checked_for_leaks_too():
    given_files = files(a=["one"], replay=["q"], eval=["e"], test=["t"])
    suites = {"s": [Item("data/s.jsonl", 1, ["q"])]}
    assert assemble(given_files, suites, PLAIN).findings == []  # share 0: not in train
    prepared = assemble(given_files, suites, changed(replay_share=0.5))
    assert [finding.rule for finding in prepared.findings] == ["leakage", "leaked-item"]


def test_replay_never_goes_to_a_held_out_split():
    texts = [f"t{i}" for i in range(40)]
    given_files = files(a=texts, replay=[f"r{i}" for i in range(40)])
    fractions = {"eval": 0.3, "test": 0.3}
    prepared = assemble(given_files, {}, changed(fractions=fractions, replay_share=0.5))
    assert prepared.findings == []
    assert {row.source for row in prepared.splits["eval"] + prepared.splits["test"]} == {"a"}
    assert prepared.report["replay"]["share"] == 0.5


def test_groups_stay_together_when_split_off():
    texts = [f"t{i}" for i in range(60)]
    given_files = {"a": loaded("a", texts, groups=[f"g{i % 12}" for i in range(60)])}
    prepared = assemble(given_files, {}, changed(fractions={"eval": 0.2, "test": 0.2}))
    assert prepared.findings == []
    sides = [{row.group for row in rows} for rows in prepared.splits.values()]
    assert sum(map(len, sides)) == 12


def test_empty_splits_are_findings():
    prepared = assemble(files(a=["one"]), {}, changed(fractions={"eval": 0.0, "test": 0.0}))
    assert [(f.message, f.field) for f in prepared.findings] == [
        ("0 rows remain for eval", "data.eval"),
        ("0 rows remain for test", "data.test"),
    ]
    half = assemble(files(a=["one"]), {}, changed(fractions={"eval": 0.5, "test": 0.5}))
    assert half.findings[0].rule == "fractions"


def test_held_out_limit_goes_to_the_ledger():
    given_files = files(a=["one"], eval=["e", "f", "g"], test=["t"])
    prepared = assemble(given_files, {}, changed(held_out_rows={"eval": 2, "test": None}))
    [dropped] = prepared.ledger
    assert dropped == Dropped(dropped.id, "eval", dropped.line, "max_rows", "eval")
    assert prepared.report["splits"]["eval"] == 2


SETTINGS = st.builds(
    lambda deduplicate, weight, limit, fraction, share: changed(
        deduplicate=deduplicate,
        weights={"a": weight},
        max_rows={"a": limit},
        fractions={"eval": fraction, "test": None},
        replay_share=share,
        held_out_rows={"eval": 2, "test": 1},
    ),
    st.booleans(),
    st.floats(0.1, 3.0),
    st.none() | st.integers(1, 10),
    st.floats(0.0, 0.4),
    st.floats(0.0, 0.9),
)


@given(texts=st.lists(st.sampled_from("abcdefgh"), max_size=20), settings=SETTINGS)
def test_rows_in_are_rows_kept_plus_rows_dropped(texts, settings):
    given_files = files(a=texts, replay=["r", "R", "s"], test=["t", "t"])
    prepared = assemble(given_files, {}, settings)
    for name, figures in prepared.report["sources"].items():
        kept, dropped = sum(figures["kept"].values()), sum(figures["dropped"].values())
        assert figures["rows"] == kept + dropped, name
    for rows in prepared.splits.values():
        ids = [row.id for row in rows]
        assert len(ids) == len(set(ids))
