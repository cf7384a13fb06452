"""Talks are tokenized in linear time; exits 1 when 4 times the turns take over 8 times as long.

    python bench/long_talks.py [--turns 50 100 200 400] [--split 50 100 200] [--rounds 5]
                               [--per-turn]

    stable    the template prints each answer the same in every place (unstable=error)
    last      it prints reasoning in the last turn only, and `unstable: last` trains that turn
    split     the same template with `unstable: split`: an example for each turn holds all turns
              before it, so tokens grow like the square; measured at --split turns, once, not judged

Messages are 12 words long; the tokenizer is a small BPE. Times are CPU milliseconds of
tokenize_conversation, proofs included: the least of --rounds, in which all talks take turns.
Linear would be a ratio of 4, quadratic 16; judged are the longest talk and the one of a quarter of
its turns. --per-turn asks the per-turn definition about every turn, as long talks did once: it
shows what is saved, and that the verdict can fail.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from rounds import Result, in_turn
from template_table import DATE, tokenizers

from hashtune.chat import bodies
from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.stops import stop_sequences
from hashtune.chat.template import Template
from hashtune.records import Conversation

LIMIT = 8.0
WORDS = 12
STABLE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
UNSTABLE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n' }}{% endif %}"
    "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
Policy = Literal["error", "last", "split"]
KINDS: dict[str, tuple[str, Policy]] = {
    "stable": (STABLE, "error"),
    "last": (UNSTABLE, "last"),
    "split": (UNSTABLE, "split"),
}
JUDGED = ("stable", "last")
Name = tuple[str, int]  # kind, turns


def main() -> int:
    """Measure, print a line for each kind and length, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--split", type=int, nargs="*", default=[50, 100, 200])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--per-turn", action="store_true")
    wanted = parser.parse_args()
    if wanted.per_turn:
        bodies.FEW = sys.maxsize
    made = {text: template(text) for text in (STABLE, UNSTABLE)}
    judged = runs(made, [(kind, turns) for kind in JUDGED for turns in wanted.turns])
    results = in_turn(judged, wanted.rounds, lambda text: None)
    results |= in_turn(runs(made, [("split", n) for n in wanted.split]), 1, lambda text: None)
    for kind, turns in results:
        best = min(results[kind, turns], key=lambda result: result["ms"])
        print(f"{kind:7} {turns:4} turns {best['ms']:9.1f} ms {best['tokens']:10,} tokens")
    found = ratios(results)
    for kind, ratio in found.items():
        print(f"{kind}: {ratio:.2f} times the time for 4 times the turns, limit {LIMIT:g}")
    return int(any(ratio > LIMIT for ratio in found.values()))


def runs(made: Mapping[str, Template], names: Sequence[Name]) -> dict[Name, Callable[[], Result]]:
    """A measurement for each talk."""
    return {
        (kind, turns): partial(measured, made[KINDS[kind][0]], talk(turns), KINDS[kind][1])
        for kind, turns in names
    }


def template(text: str) -> Template:
    """The template with its tokenizer."""
    row = {"bos_token_used": "(unset)", "eos_token_used": "<|im_end|>"}
    return Template(tokenizers(row, text)[0], text, {}, DATE)


def talk(turns: int) -> Conversation:
    """Questions and answers of seeded words; `turns` counts the answers."""
    chance = random.Random(turns)
    words = ["invoice", "late", "please", "check", "the", "order", "again", "thanks", "refund"]
    messages: list[Any] = [
        {"role": role, "content": " ".join(chance.choices(words, k=WORDS))}
        for _ in range(turns)
        for role in ("user", "assistant")
    ]
    return Conversation("talk", "bench", messages, 1)


def measured(template: Template, conversation: Conversation, unstable: Policy) -> Result:
    """CPU milliseconds and tokens of all examples."""
    stops = stop_sequences(template, eos_ids=[], declared=[])
    start = time.process_time()
    done = tokenize_conversation(
        conversation,
        template,
        stops,
        loss_on="assistant",
        unstable=unstable,
        mismatch="error",
    )
    spent = time.process_time() - start
    return {"ms": 1000 * spent, "tokens": sum(len(one.input_ids) for one in done.examples)}


def ratios(results: Mapping[Name, Sequence[Result]]) -> dict[str, float]:
    """By judged kind, the least time of the longest talk over that of one of a quarter of its
    turns. Raises ValueError where that one was not measured."""
    found = {}
    for kind in JUDGED:
        least = {n: min(r["ms"] for r in rounds) for (k, n), rounds in results.items() if k == kind}
        longest = max(least)
        if longest % 4 or longest // 4 not in least:
            raise ValueError(f"--turns has {longest} and not a quarter of it")
        found[kind] = least[longest] / least[longest // 4]
    return found


if __name__ == "__main__":
    sys.exit(main())
