"""Conversations whose outcome only tokenize can tell: roles, calls, reasoning, loss, length.

A talk is (name, template, what becomes of it, messages). What becomes of it is an Outcome, or the
rule under which reading drops the row.
"""

import json
from random import Random
from typing import Any

from fuzz.calls import CALLS
from fuzz.case import Case
from fuzz.rows import Messages, Row, written
from fuzz.templates import CONTROL, END, LIMIT, RAISES, Outcome

Talk = tuple[str, str, Outcome | str, Messages]
ODD = (  # texts that any template must print as they are
    "plain",
    "a\ufeffb",
    "\u202eright to left\u202c and \u2066isolated\u2069",
    "nul \x00 inside",
    "zqa zqb zqnextqz zqanswerqz zquserqz",
    "<|im_end| > and <im_end>",
    "</think> closes nothing",
    "<think>hm</think>yes",
    "{{ messages }} {% raw %}",
    "\U0001f469\u200d\U0001f469 e\u0301",
    "7" * 300,
    "assistant\n",
)
BLANKS = (" ", "\n", "\n\n", "\t ", "\u00a0", "\u2028", " \r\n", "\x1c")
WRONG_TRAIN = (None, 0, 1, "false", "", [], {}, 0.0, {"a": True})
WRONG_WEIGHT = (None, True, False, "0", "1.0", 2, -1, 0.5, 10**400, [], {}, 1e308)


def _user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def _answer(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def _trained(*texts: str) -> Outcome:
    return Outcome(tuple(text + END for text in texts))


def _refused(rule: str) -> Outcome:
    return Outcome(rule=rule)


def _losses(random: Random, u: str, a: str) -> list[Talk]:
    two = [_user(u), _answer(a), _user("and?"), _answer("b")]

    def masked(first: Any, **more: Any) -> Messages:
        return [two[0], _answer(a, **more), two[2], {**two[3], **first}]

    off = random.choice(({"train": False}, {"weight": 0}, {"weight": 0.0}, {"weight": -0.0}))
    on = random.choice(({}, {"train": True}, {"weight": 1}, {"weight": 1.0}))
    both = {"train": True, "weight": 0}
    return [
        ("masked", "base", _trained("b"), masked(on, **off)),
        ("masked-last", "base", _trained(a), masked(off, **on)),
        ("masked-twice", "base", "train-weight", masked(on, **both)),
        ("masked-alike", "base", _trained("b"), masked(on, train=False, weight=0)),
        ("masked-all", "base", _refused("nothing-to-learn"), masked(off, **off)),
        ("user-masked", "base", _trained(a), [_user(u, train=False), _answer(a)]),
        ("train-type", "base", "wrong-type", masked({}, train=random.choice(WRONG_TRAIN))),
        ("weight-type", "base", "wrong-type", masked({}, weight=random.choice(WRONG_WEIGHT))),
    ]


def _roles(random: Random, u: str, a: str) -> list[Talk]:
    system, developer = ({"role": role, "content": "be"} for role in ("system", "developer"))
    tool = {"role": "tool", "content": random.choice(("", "42"))}
    late = [_user(u), system, _answer(a)]
    return [
        ("developer", "base", _trained(a), [developer, _user(u), _answer(a)]),
        ("developer", "strict", _refused("template-refuses"), [developer, _user(u), _answer(a)]),
        ("late-system", "base", _trained(a), late),
        ("late-system", "strict", _refused("template-refuses"), late),
        ("no-user", "base", _trained(a), [system, _answer(a)]),
        ("no-user", "strict", _refused("template-refuses"), [system, _answer(a)]),
        ("first-assistant", "base", _trained("b"), [_answer(a), _user(u), _answer("b")]),
        ("lone-assistant", "base", _refused("no-prompt"), [_answer(a)]),
        ("tool", "base", _trained(a, "b"), [_user(u), _answer(a), tool, _answer("b")]),
        (
            "tool",
            "strict",
            _refused("template-refuses"),
            [_user(u), _answer(a), tool, _answer("b")],
        ),
        ("asked-twice", "base", _trained(a), [_user(u), _user("well?"), _answer(a)]),
        (
            "asked-twice",
            "strict",
            _refused("template-refuses"),
            [_user(u), _user("well?"), _answer(a)],
        ),
        ("turns", "strict", _trained(a, "b"), [_user(u), _answer(a), _user(u), _answer("b")]),
        ("turns", "base", _trained(*[a] * 9), [_user(u), _answer(a)] * 9),
    ]


def _reasons(_: Random, u: str, a: str) -> list[Talk]:
    one = [_user(u), _answer(a, reasoning_content="hm")]
    said = f"<think>\nhm\n</think>\n\n{a}"
    own = [_user(u), _answer(f"<think>\nhm\n</think>\n\n{a}")]
    return [
        ("reasoning", "base", _refused("dropped"), one),
        ("reasoning", "agent", _trained(said), one),
        ("reasoning", "forgets", _trained(said), one),
        ("reasoning-twice", "agent", _trained(said, said), one * 2),
        ("reasoning-twice", "forgets", _refused("unstable"), one * 2),
        ("reasoning-empty", "base", _trained(a), [_user(u), _answer(a, reasoning_content="")]),
        ("reasoning-null", "agent", _trained(a), [_user(u), _answer(a, reasoning_content=None)]),
        ("never-closed", "base", _refused("open-reasoning"), [_user(u), _answer("<think>hm")]),
        ("opened", "opens", _trained(f"hm\n</think>\n\n{a}"), own),
        ("opened-twice", "opens", _trained(*[f"hm\n</think>\n\n{a}"] * 2), own * 2),
        ("not-opened", "opens", _refused("mismatch"), [_user(u), _answer(a)]),
        (
            "opened-never-closed",
            "opens",
            _refused("open-reasoning"),
            [_user(u), _answer("<think>\nhm")],
        ),
        ("user-opens", "base", _trained(a), [_user(f"<think>{u}"), _answer(a)]),
    ]


def _raises(random: Random, _: str, a: str) -> list[Talk]:
    """Under "raises": one content on which it raises, and contents that it takes."""
    named, one_line = random.choice(RAISES), a.replace("\n", " ")
    talk = [_user("hi"), _answer(one_line), _user(f"not {named}"), _answer("b")]
    raising = [*talk[:2], _user(named), talk[3]]
    return [
        (f"raises-{named}", "raises", _refused("template-refuses"), raising),
        ("raises-nothing", "raises", _trained(one_line, "b"), talk),
        (
            "raises-masked",
            "raises",
            _trained("b"),
            [talk[0], {**talk[1], "train": False}, *talk[2:]],
        ),
    ]


def _texts(random: Random, u: str, a: str) -> list[Talk]:
    token, blank = random.choice(CONTROL), random.choice(BLANKS)
    edges = [_user(blank + u), _answer(blank + a + blank)]
    long = "7" * (LIMIT + random.randrange(3))
    return [
        ("control-user", "base", _refused("control-token"), [_user(u + token), _answer(a)]),
        ("control-answer", "agent", _refused("control-token"), [_user(u), _answer(token + a)]),
        (
            "control-name",
            "agent",
            _refused("control-token"),
            [_user(u, name=f"x{token}"), _answer(a)],
        ),
        ("name", "agent", _trained(a), [_user(u, name="Ann"), _answer(a)]),
        ("edges", "base", _trained(blank + a + blank), edges),
        ("edges-trimmed", "strict", _trained(a), edges),
        ("long-answer", "base", Outcome(long=True), [_user(u), _answer(long)]),
        ("long-prompt", "strict", Outcome(long=True), [_user(long), _answer(a)]),
        ("odd", "strict", _trained(a), [_user(u), _answer(a)]),
        ("nested", "base", _trained(a), [_user(u, x=json.loads("[" * 90 + "]" * 90)), _answer(a)]),
        ("number", "base", _trained(a), [_user(u, x=10**3900, y=5e-324), _answer(a)]),
    ]


def talk_row(random: Random, template: str) -> Row:
    """A row for this template."""
    user, answer = (f"{random.choice(ODD)}{random.randrange(1000)}" for _ in range(2))
    found: list[Talk] = []
    for make in (_losses, _roles, _reasons, _raises, _texts):
        found += make(random, user, answer)
    found += [
        (f"call-{name}", "agent", result, [_user(user), message, *rest])
        for name, result, message, rest in CALLS
    ]
    name, _, result, messages = random.choice([talk for talk in found if talk[1] == template])
    value = {"messages": messages}
    if isinstance(result, str):
        return Row(name, written(random, value), value, bad=result)
    kept = [{"content": None, **message} for message in messages]
    return Row(name, written(random, value), value, kept=kept, outcome=result)


def talks(random: Random) -> Case:
    """JSON lines or a JSON array of talks for one template."""
    weights = {"base": 4, "strict": 2, "agent": 4, "forgets": 1, "opens": 1, "raises": 1}
    template = random.choices(list(weights), list(weights.values()))[0]
    kind = random.choice(("jsonl", "json"))
    case = Case(f"talks {template}", kind, "messages", template=template)
    rows = [talk_row(random, template) for _ in range(random.randint(1, 5))]
    start, between, end = (b"[\n", b",\n", b"\n]") if kind == "json" else (b"", b"\n", b"\n")
    case.data = start + between.join(row.text for row in rows) + end
    for line, row in enumerate(rows, start=2 if kind == "json" else 1):
        case.note(row, line)
    return case
