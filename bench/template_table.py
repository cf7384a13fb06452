"""Which published chat templates are handled, and with which settings: writes docs/templates.md.

usage: python bench/template_table.py FOLDER     (FOLDER/SOURCES.tsv and FOLDER/*.jinja)

The templates come without tokenizers, so two small ones are trained on the replay prompts, with
the pre-tokenizers of GPT-2 and of Llama 3; the template's control strings are their added tokens.
A cell is `exact` only where tokenization, with its proof, gives the same trained text with both.
"""

import csv
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hashtune.chat.examples import tokenize_conversation
from hashtune.chat.stops import stop_sequences
from hashtune.chat.template import Template
from hashtune.errors import InputError
from hashtune.records import IGNORE_INDEX, Conversation

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs/templates.md"
CONTROL = re.compile(
    r"<\|[^|<>'\"\s{}]+\|>|<｜[^｜<>'\"]+｜>|\[/?[A-Z_]{3,}\]|<(?:start|end)_of_turn>|<sop>"
    r"|\[\|[a-z]+\|\]|</?think>|<SPECIAL_\d+>|<\|?turn\|?>"
)
LLAMA_3 = (  # as its tokenizer.json has it
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CALL = {
    "type": "function",
    "id": "abcdefghi",
    "function": {"name": "weather", "arguments": {"city": "Oslo"}},
}
HI, YO = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}
DATE = "2026-01-01"
TALKS: dict[str, list[dict[str, Any]]] = {
    "plain": [
        HI,
        YO,
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "ok then"},
    ],
    "system": [{"role": "system", "content": "be kind"}, HI, YO],
    "reasoning": [HI, {**YO, "reasoning_content": "addle"}],
    "tool": [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "sun"},
        YO,
    ],
}
TALKS["list content"] = [  # the plain one in text parts
    {**message, "content": [{"type": "text", "text": part} for part in message["content"]]}
    for message in TALKS["plain"]
]
NEXT_ROLES = ["<|user|>", "<|observation|>"]
SETTINGS: list[dict[str, Any]] = [  # tried in this order; at most two lines of conf
    {},
    {"unstable": "split"},
    {"template_kwargs": {"enable_thinking": False}},
    {"mismatch": "as_stored"},
    {"mismatch": "as_prompted"},
    {"system": "merge_into_user"},
    {"template_kwargs": {"tools": []}},
    {"template_kwargs": {"enable_thinking": True}},
    {"template_kwargs": {"enable_thinking": True, "skip_think": False}},
    {"stops": NEXT_ROLES},
    {"stops": ["<|end|>"]},
    {"template_kwargs": {"enable_thinking": False}, "unstable": "split"},
    {"template_kwargs": {"tools": []}, "mismatch": "as_stored"},
    {"stops": NEXT_ROLES, "template_kwargs": {"enable_thinking": False}},
    {"stops": NEXT_ROLES, "mismatch": "as_stored"},
    {"stops": ["<|end|>"], "mismatch": "as_stored"},
]


def tokenizers(row: Mapping[str, str], text: str) -> list[Any]:
    """The two tokenizers of a template, which know its control strings."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bos = None if row["bos_token_used"] == "(unset)" else row["bos_token_used"]
    control = sorted({*CONTROL.findall(text), row["eos_token_used"], *filter(None, [bos])})
    byte_level = pre_tokenizers.ByteLevel
    llama = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")
    made = []
    for before in (
        byte_level(add_prefix_space=False, use_regex=True),
        pre_tokenizers.Sequence([llama, byte_level(add_prefix_space=False, use_regex=False)]),
    ):
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = before
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=600, initial_alphabet=byte_level.alphabet(), show_progress=False
        )
        prompts = (ROOT / "data/replay/prompts.jsonl").read_text(encoding="utf-8").splitlines()
        backend.train_from_iterator(prompts, trainer)
        for token in control:
            backend.add_tokens([AddedToken(token, normalized=False, special="think" not in token)])
        made.append(
            PreTrainedTokenizerFast(
                tokenizer_object=backend, bos_token=bos, eos_token=row["eos_token_used"]
            )
        )
    return made


def trained(
    template: Template, messages: Sequence[Any], settings: Mapping[str, Any]
) -> list[str] | str:
    """The trained texts of a conversation, example by example, or the rule that refuses it."""
    try:
        stops = stop_sequences(template, eos_ids=[], declared=settings.get("stops", []))
        done = tokenize_conversation(
            Conversation("c", "table", list(messages), 1),
            template,
            stops,
            loss_on="assistant",
            unstable=settings.get("unstable", "error"),
            mismatch=settings.get("mismatch", "error"),
        )
    except InputError as error:
        return error.findings[0].rule
    return [
        template.tokenizer.decode(
            [label for label in example.labels if label != IGNORE_INDEX],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        for example in done.examples
    ]


def cell(pair: Sequence[Any], text: str, talk: str, settings: Mapping[str, Any]) -> str:
    """`exact`, the rule that refuses, or `differs` where the two tokenizers disagree."""
    kwargs = dict(settings.get("template_kwargs", {}))
    stored = settings.get("mismatch") == "as_stored"
    merge = settings.get("system") == "merge_into_user"
    found = []
    for tokenizer in pair:
        template = Template(tokenizer, text, kwargs, DATE, stored, merge_system=merge)
        found.append(trained(template, TALKS[talk], settings))
        if isinstance(found[0], str):  # refused: the second is not asked
            return found[0]
    return "exact" if found[0] == found[1] else "differs"


def cured(
    pair: Sequence[Any], text: str, talk: str, first: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """The cell with no setting, and what the settings say that make it exact: `first`, or the first
    of SETTINGS. Where none does, what `first` makes of it. And these settings."""
    plain = cell(pair, text, talk, {})
    if plain == "exact":
        return plain, {}
    tried = (settings for settings in (first, *SETTINGS) if settings)
    chosen = next((s for s in tried if cell(pair, text, talk, s) == "exact"), first)
    needs = " and ".join(f"`{key}: {json.dumps(value)}`" for key, value in chosen.items())
    said = cell(pair, text, talk, chosen)
    return (plain if said == plain else f"{plain}; {said} with {needs}"), chosen


def line(row: Mapping[str, str], text: str) -> list[str]:
    """One template: its name and a cell for each kind of conversation."""
    pair = tokenizers(row, text)
    plain, needed = cured(pair, text, "plain", {})
    others = [cured(pair, text, talk, needed)[0] for talk in TALKS if talk != "plain"]
    return [row["name"], *(shown.replace("|", "\\|") for shown in (plain, *others))]


def table(folder: Path) -> str:
    """The Markdown page."""
    with (folder / "SOURCES.tsv").open(encoding="utf-8", newline="") as handle:
        rows = sorted(csv.DictReader(handle, delimiter="\t"), key=lambda row: row["name"])
    lines = [
        line(row, (folder / f"{row['name']}.jinja").read_bytes().decode("utf-8")) for row in rows
    ]
    counts = [
        f"{talk} {sum(cells[index] == 'exact' for cells in lines)} and"
        f" {sum('exact' in cells[index] for cells in lines)}"
        for index, talk in enumerate(TALKS, 1)
    ]
    head = ["template", *TALKS]
    body = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines]]
    return (
        "# Published chat templates\n\n"
        "Written by `python bench/template_table.py FOLDER`. `exact`: the trained text is what"
        " inference must write, proven by both derivations, and the same with two tokenizers (the"
        " pre-tokenizers of GPT-2 and Llama 3). Anything else is the rule that refuses the"
        " conversation ([failures.md](failures.md)), with no setting; then the first settings of"
        " `tokenizer` that were found to cure it, at most two. `dropped`: the template"
        " does not print that field.\n\n"
        f"Of {len(lines)} templates, exact with no setting and with at most two:"
        f" {', '.join(counts)}.\n\n" + "\n".join(body) + "\n"
    )


def main() -> int:
    """Write the page."""
    OUT.write_text(table(Path(sys.argv[1])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
