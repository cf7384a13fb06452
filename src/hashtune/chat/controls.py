"""Control strings of a template that the tokenizer does not know as one token.

Legal, since a stop may be several ids, but often a base that was never made for this template:
`tokenizer.added_tokens` makes each of them one token.
"""

import re

from hashtune.chat.messages import ASSISTANT
from hashtune.chat.stops import StopSet
from hashtune.chat.template import Template
from hashtune.errors import InputError

CONTROL = re.compile(r"<\|[^|<>\s]+\|>|<｜[^｜<>\s]+｜>|</?[a-z]+(?:_[a-z]+)*>|\[/?[A-Z_]{2,}\]")
TALK = [
    {"role": "user", "content": "zquserqz"},
    {"role": ASSISTANT, "content": "zqanswerqz"},
    {"role": "user", "content": "zquserqz"},
]


def in_several_ids(template: Template, stops: StopSet) -> dict[str, int]:
    """Headers and stops of a plain chat that are not one token: text -> number of ids."""
    try:
        shown = template.render(TALK, add_generation_prompt=True)
    except InputError:  # a template that wants other roles; tokenize says what is wrong with a row
        shown = ""
    texts = dict.fromkeys(
        [*CONTROL.findall(shown), *(text for text in stops.texts if text.strip())]
    )
    counts = {text: len(template.encode(text)) for text in texts}
    return {text: count for text, count in sorted(counts.items()) if count > 1}
