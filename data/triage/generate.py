"""Write the support-ticket triage data: train.jsonl, eval.jsonl and test.jsonl.

A ticket is opener + problem + priority cue + closer in one of six tones. The problem alone decides
the intent and the cue alone decides the priority (no cue means normal), so the two labels are
independent. Wordings and slot values live in ``pools/<split>.json`` and no two splits share any:
eval and test ask for the same skill in words that train never shows. About one ticket in eight has
a follow-up, which either gives the open issue a new priority or opens another issue.

Everything is drawn from ``random.Random`` seeded per split, so each run writes the same bytes, in
about a second, with the standard library alone:

    python data/triage/generate.py [--out DIR]
"""

import argparse
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
SEED = 20240607
SIZES = {"train": 1280, "eval": 160, "test": 220}
FOLLOW_UP_SHARE = 0.12
INTENTS = ("billing", "delivery", "login", "bug", "cancel", "question")
PRIORITIES = ("low", "normal", "high")
SYSTEM = "Triage the support ticket."

#: What the house promises per intent; the first action whose slot the ticket names is used.
ACTIONS = {
    "billing": (
        "check invoice {invoice}",
        "check the {amount} payment",
        "check your {product} bill",
    ),
    "delivery": ("check on order {order}", "check on your {item}"),
    "login": ("restore your {product} access",),
    "bug": ("look into error {code}", "look into the {product} fault"),
    "cancel": ("confirm your {product} cancellation",),
    "question": ("answer your {product} question",),
}
TIMES = {"low": "next week", "normal": "by tomorrow", "high": "within the hour"}
SHORTHAND = {"please": "pls", "you": "u", "because": "cuz", "and": "n", "your": "ur"}


class Label(NamedTuple):
    """The two answers that a ticket asks for."""

    intent: str
    priority: str


class Deck:
    """Deals pool entries in shuffled rounds, so that each is used about equally often."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left: dict[int, list[str]] = {}

    def deal(self, pool: list[str]) -> str:
        """Return the next entry of this pool."""
        left = self._left.setdefault(id(pool), [])
        if not left:
            left.extend(self._rng.sample(pool, len(pool)))
        return left.pop()


class Writer:
    """Writes the conversations of one split from its pools."""

    def __init__(self, pools: dict[str, Any], rng: random.Random) -> None:
        self._pools, self._rng, self._deck = pools, rng, Deck(rng)

    def conversation(self, label: Label, follow_up: bool) -> list[dict[str, str]]:
        """Return the messages of a ticket whose last turn has this label."""
        slots = {name: self._slot(name) for name in self._pools["slots"]}
        tone = self._rng.choice(sorted(self._pools["tones"]))
        same_issue = follow_up and label.priority != "normal" and self._rng.random() < 0.6
        first = self._earlier(label, same_issue) if follow_up else label
        problem = self._problem(first)
        turns = [(first, problem, self._opening(first, tone, problem))]
        if same_issue:
            turns.append((label, problem, self._parts("updates", label)))
        elif follow_up:
            problem = self._problem(label)
            turns.append((label, problem, self._parts("switches", label, problem)))
        messages = [{"role": "system", "content": SYSTEM}]
        for turn, about, parts in turns:
            text = " ".join(part for part in parts if part).format_map(slots)
            text = sloppy(text, slots, self._rng) if tone == "sloppy" else text
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": answer(turn, slots, about)})
        return messages

    def _earlier(self, label: Label, same_issue: bool) -> Label:
        """Return a label for the first turn that differs from that of the last."""
        if same_issue:
            others = [priority for priority in PRIORITIES if priority != label.priority]
            return Label(label.intent, self._rng.choice(others))
        intents = [intent for intent in INTENTS if intent != label.intent]
        return Label(self._rng.choice(intents), self._rng.choice(PRIORITIES))

    def _opening(self, label: Label, tone: str, problem: str) -> list[str]:
        body = [problem, self._context(label.priority)]
        if label.priority != "normal" and self._rng.random() < 0.2:
            body.reverse()
        voice = self._pools["tones"][tone]
        return [self._maybe(voice["open"], 0.7), *body, self._maybe(voice["close"], 0.5)]

    def _parts(self, lead: str, label: Label, *problem: str) -> list[str]:
        return [self._deck.deal(self._pools[lead]), *problem, self._context(label.priority)]

    def _problem(self, label: Label) -> str:
        return self._deck.deal(self._pools["problems"][label.intent])

    def _context(self, priority: str) -> str:
        if priority != "normal":
            return self._deck.deal(self._pools["cues"][priority])
        return self._maybe(self._pools["neutral"], 0.6)

    def _maybe(self, pool: list[str], chance: float) -> str:
        return self._deck.deal(pool) if self._rng.random() < chance else ""

    def _slot(self, name: str) -> str:
        pool = self._pools["slots"][name]
        if isinstance(pool, list):
            return self._deck.deal(pool)
        if name == "date":
            return f"{self._rng.randint(*pool['days'])} {self._rng.choice(pool['months'])}"
        if name == "amount":
            return f"${self._rng.randint(*pool['dollars'])}"
        return f"{pool['prefix']}{self._rng.randint(*pool['range'])}"


def answer(label: Label, slots: dict[str, str], problem: str) -> str:
    """Return the triage as one line of JSON; `problem` is the unfilled template of the issue."""
    for action in ACTIONS[label.intent]:
        if re.findall(r"{\w+}", action)[0] in problem:
            reply = f"We will {action.format_map(slots)} {TIMES[label.priority]}."
            body = {"intent": label.intent, "priority": label.priority, "reply": reply}
            return json.dumps(body)
    raise ValueError(f"no {label.intent} action names a slot of: {problem!r}")


def sloppy(text: str, slots: dict[str, str], rng: random.Random) -> str:
    """Return the text as if typed in a hurry: lower case, short forms and at most one typo."""
    words = text.lower().replace("'", "").rstrip(".").split()
    words = [SHORTHAND.get(word, word) for word in words]
    kept = set(" ".join(slots.values()).lower().split())
    long = [i for i, word in enumerate(words) if len(word) > 6 and word.isalpha()]
    long = [i for i in long if words[i] not in kept]
    if long and rng.random() < 0.5:
        spot, at = rng.choice(long), rng.randint(2, 4)
        word = words[spot]
        words[spot] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(words)


def build_split(split: str, size: int, seen: set[str]) -> list[dict[str, Any]]:
    """Return the rows of a split; `seen` holds the user texts used so far and is extended."""
    rng = random.Random(f"{SEED}-{split}")
    pools = json.loads((HERE / "pools" / f"{split}.json").read_text(encoding="utf-8"))
    writer = Writer(pools, rng)
    combos = [Label(*pair) for pair in itertools.product(INTENTS, PRIORITIES)]
    labels = rng.sample([combos[i % len(combos)] for i in range(size)], size)
    follow_ups = round(FOLLOW_UP_SHARE * size)
    drawn = [fresh(writer, label, i < follow_ups, seen) for i, label in enumerate(labels)]
    rng.shuffle(drawn)
    return [{"id": f"{split}-{i:04d}", "messages": m} for i, m in enumerate(drawn, start=1)]


def fresh(writer: Writer, label: Label, follow_up: bool, seen: set[str]) -> list[dict[str, str]]:
    """Draw conversations until one has only new user texts, which then join `seen`."""
    while True:
        messages = writer.conversation(label, follow_up)
        texts = [message["content"].lower() for message in messages if message["role"] == "user"]
        keys = {" ".join(re.findall(r"\w+", text)) for text in texts}
        if not keys & seen:
            seen |= keys
            return messages


def main() -> None:
    """Write the three files into the output folder."""
    parser = argparse.ArgumentParser(description="Write the triage data.")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the three files")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    for split, size in SIZES.items():
        rows = build_split(split, size, seen)
        lines = [json.dumps(row) + "\n" for row in rows]
        (out / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
