"""The pinned chat template: the one way from messages to text and ids.

Training, evaluation and the registry entry use the same template text, arguments and date.
Renders go through the template that transformers compiles, encodings through the backend, word by
word where that is exact (words.py): that skips transformers' work per call, and the first CHECKED
of each are compared with its own.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hashtune.chat.accepted import as_parts, list_roles, merge_system
from hashtune.chat.control import MARK, control_tokens, escape, without_marks
from hashtune.chat.dates import date_string, with_frozen_clock
from hashtune.chat.failures import RENDER_ERRORS, RenderError
from hashtune.chat.messages import is_plain, normalise, refused_role
from hashtune.chat.reasoning import continues
from hashtune.chat.words import Words, known_words
from hashtune.errors import Finding, InputError
from hashtune.parts import with_text
from hashtune.records import Message
from hashtune.spelling import unspelled
from hashtune.writers import sha256_bytes

Outline = list[tuple[str, int]]  # the text before each content, and whose it is
ANSWER = "zqanswerqz"
KEPT_IDS = 4  # a text, and the same with a stop behind it
CHECKED = 32  # renders and encodings of each Template that transformers repeats
ADDRESS = re.compile(r" at 0x[0-9a-f]+>")  # in Python's words for an object
REPEATS = 16  # renders that tell a template of chance from a fault of ours
SPOT = 64  # texts of so many characters, or a multiple, are encoded by words and whole


@dataclass(frozen=True)
class Template:
    """A chat template with everything that decides what it prints.

    Args:
        tokenizer: a fast tokenizer of transformers (special tokens, encoding).
        text: the Jinja source.
        kwargs: extra arguments of the template, for instance {"enable_thinking": False}.
        date: ISO date that stands for today.
        stored_header: prompts end with the header that stored answers have, where that differs
            from the generation prompt (`tokenizer.mismatch: as_stored`).
        escape: control tokens in contents become plain text (`tokenizer.special_in_content`).
        merge_system: the system message goes before the first question (`tokenizer.system`).
        name: what `tokenizer.chat_template` calls it, for findings.
    """

    tokenizer: Any
    text: str
    kwargs: dict[str, Any]
    date: str
    stored_header: bool = False
    escape: bool = False
    merge_system: bool = False
    name: str = "base"

    @cached_property
    def sha256(self) -> str:
        """Hex sha256 of the Jinja source."""
        return sha256_bytes(self.text.encode("utf-8"))

    @cached_property
    def added_tokens(self) -> list[tuple[str, bool]]:
        """The tokenizer's added tokens (text, special), sorted; blank ones forge nothing."""
        added = self.tokenizer.added_tokens_decoder.values()
        return sorted((token.content, token.special) for token in added if token.content.strip())

    @cached_property
    def stripping(self) -> dict[int, tuple[str, bool]]:
        """The added tokens that take the blanks beside them, by id: the text, and whether those
        behind it go (`rstrip`), or only those before it (`lstrip`)."""
        decoder = self.tokenizer.added_tokens_decoder.items()
        return {i: (own.content, own.rstrip) for i, own in decoder if own.rstrip or own.lstrip}

    @cached_property
    def bos(self) -> tuple[int | None, str | None, bool]:
        """The tokenizer's BOS: id and text (None where it has none), and whether it adds one."""
        tokenizer = self.tokenizer
        wanted = bool(getattr(tokenizer, "add_bos_token", False))
        return tokenizer.bos_token_id, tokenizer.bos_token, wanted

    @cached_property
    def searched_texts(self) -> frozenset[str]:
        """The constants that the template looks for in texts (`in`, split, startswith, ...)."""
        from hashtune.chat.rendering import searched_texts

        return searched_texts(self.text)

    @cached_property
    def constants(self) -> frozenset[str]:
        """The texts that the template's source can print, and its arguments."""
        from hashtune.chat.rendering import constants

        return constants(self._frozen, [self._arguments, self.tokenizer.special_tokens_map])

    @cached_property
    def own_texts(self) -> set[str]:
        """What own_text.py keeps of this template."""
        return set()

    @cached_property
    def added_token_pattern(self) -> re.Pattern[str]:
        """Finds an added token in a text, where one is."""
        return re.compile("|".join(re.escape(token) for token, _ in self.added_tokens) or "(?!)")

    @cached_property
    def tails(self) -> dict[Any, str]:
        """What tails.py keeps of this template."""
        return {}

    @cached_property
    def outlines(self) -> dict[tuple[str, ...], Outline | None]:
        """What outline.py keeps of this template."""
        return {}

    @cached_property
    def pieces(self) -> dict[int, bytes] | None:
        """The bytes of each token, where the tokenizer is byte-level."""
        from hashtune.chat.pieces import byte_pieces

        return byte_pieces(self.tokenizer.backend_tokenizer)

    @cached_property
    def piece_sizes(self) -> dict[int, int]:
        """The number of those bytes by id."""
        return {token: len(piece) for token, piece in (self.pieces or {}).items()}

    @cached_property
    def _frozen(self) -> str:
        return with_frozen_clock(self.text, self.date)

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        return {"date_string": date_string(self.date), **self.kwargs}

    @cached_property
    def _compiled(self) -> Callable[[list[Message], bool], str]:
        from hashtune.chat.rendering import drawn_names, renderer

        if drawn := drawn_names(self._frozen):
            raise InputError(self._unstable(f"it uses {' and '.join(drawn)}"))
        return renderer(self._frozen, self.tokenizer.special_tokens_map, self._arguments)

    @cached_property
    def _list_roles(self) -> frozenset[str]:
        def render(messages: list[Message]) -> str | None:
            try:
                return self._compiled(messages, False)
            except RenderError:
                return None

        return list_roles(render)

    @cached_property
    def _checked(self) -> Counter[str]:
        return Counter()

    @cached_property
    def _last(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _words(self) -> Words | None:
        return known_words(self.tokenizer, self._whole)

    @cached_property
    def _last_ids(self) -> dict[str, list[int]]:
        return {}

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
        """The text of a conversation.

        Raises:
            InputError: the template refuses it or raises, and the finding names the message; or it
                prints another text each time.
        """
        normal = list(messages) if all(map(is_plain, messages)) else normalise(messages)
        if self.merge_system:
            normal = merge_system(normal)
        if self._list_roles:
            normal = as_parts(normal, self._list_roles)
        try:
            return self._apply(normal, add_generation_prompt=add_generation_prompt)
        except RenderError as error:
            shift = len(messages) - len(normal)
            raise InputError(self._refusal(normal, shift, error, add_generation_prompt)) from error

    def prompt(self, messages: Sequence[Message]) -> str:
        """What inference gives the model before it writes the next assistant message."""
        prompt = self.render(messages, add_generation_prompt=True)
        if not self.stored_header:
            return prompt
        stored = self.render([*messages, {"role": "assistant", "content": ANSWER}])
        header = stored[: stored.rfind(ANSWER)]
        return prompt if continues(prompt, header) else header

    def encode(self, text: str) -> list[int]:
        """Token ids of rendered text; nothing is added, since the template prints its own BOS."""
        if self.escape and MARK in text:
            return list(self.encoding(text).ids)
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise TypeError(f"the tokenizer returned {type(ids).__name__}, expected a list of ids")
        return ids

    def ids(self, text: str) -> list[int]:
        """The backend's ids of a text, marks of control.escape left out. The last few are kept.

        Raises:
            AssertionError: transformers gives other ids, or the whole text has others than its
                words (words.py), in one text of SPOT.
        """
        if text not in self._last_ids:
            if self.escape and MARK in text:
                ids = self.encoding(text).ids
            else:
                ids = self._words.ids(text) if self._words is not None else self._whole(text)
                self._compare(text, ids)
            if len(self._last_ids) == KEPT_IDS:
                self._last_ids.clear()
            self._last_ids[text] = ids
        return self._last_ids[text]

    def encoding(self, text: str) -> Any:
        """The backend's encoding of a text: ids and offsets. The last one is kept.

        A text with marks of control.escape gives control.Encoded.

        Raises:
            AssertionError: transformers gives other ids.
        """
        if text not in self._last:
            encoding = self._backend.encode(text, add_special_tokens=False)
            marked = self.escape and MARK in text
            if not marked:
                self._compare(text, encoding.ids)
            self._last.clear()
            self._last[text] = without_marks(text, encoding) if marked else encoding
        return self._last[text]

    @property
    def _backend(self) -> Any:
        backend = self.tokenizer.backend_tokenizer
        if backend.truncation or backend.padding:
            backend.no_truncation()
            backend.no_padding()
        return backend

    def _whole(self, text: str) -> list[int]:
        """The backend's ids without offsets, which would take it longer."""
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def _compare(self, text: str, ids: list[int]) -> None:
        if self._due("encoding") and self.encode(text) != ids:
            raise AssertionError("transformers encodes this text otherwise")
        if self._words is not None and len(text) % SPOT == 0 and self._whole(text) != ids:
            raise AssertionError("the words of this text have other ids than the whole")

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the prompt: what evaluation and generation feed to the model.

        Raises:
            InputError: a content holds a control token, and these are not escaped.
        """
        plain = [with_text(message) for message in messages]
        if self.escape:
            plain, _ = escape(plain, self.added_tokens, self.added_token_pattern)
        if found := control_tokens(plain, self.added_tokens, self.added_token_pattern):
            raise InputError(found)
        return self.encode(self.prompt(plain))

    def _apply(self, normal: list[Message], *, add_generation_prompt: bool) -> str:
        text = self._compiled(normal, add_generation_prompt)
        if not self._due("render"):
            return text
        given = f"{self.text}{normal}{self._arguments}"
        if any(address not in given for address in ADDRESS.findall(text)):
            raise InputError(self._unstable("it prints the address of an object"))
        plain = unspelled(normal)  # transformers knows plain numbers only
        ours = text if plain is normal else self._compiled(plain, add_generation_prompt)
        if ours != self._by_transformers(plain, add_generation_prompt):
            repeated = (self._compiled(plain, add_generation_prompt) for _ in range(REPEATS))
            if any(again != ours for again in repeated):
                raise InputError(self._unstable("two renders of one conversation differ"))
            raise AssertionError("transformers renders this conversation otherwise")
        return text

    def _by_transformers(self, normal: list[Message], add_generation_prompt: bool) -> Any:
        try:
            return self.tokenizer.apply_chat_template(
                normal,
                tokenize=False,
                chat_template=self._frozen,
                add_generation_prompt=add_generation_prompt,
                **self._arguments,
            )
        except RENDER_ERRORS as error:
            raise RenderError(error) from error

    def _unstable(self, why: str) -> Finding:
        return Finding(
            "unstable-render",
            f"the template {self.name} prints another text each time: {why}",
            field="tokenizer.chat_template",
            fix="pin a template whose text depends on nothing but the messages",
        )

    def _due(self, what: str) -> bool:
        """Whether this call is one of the first, which transformers repeats."""
        if self._checked[what] >= CHECKED:
            return False
        self._checked[what] += 1
        return True

    def _refusal(
        self, normal: list[Message], shift: int, error: RenderError, add_generation_prompt: bool
    ) -> Finding:
        """Name the message: the last one of the shortest start that raises the same error."""
        culprit = len(normal) - 1
        for length in range(1, len(normal)):
            try:
                self._apply(normal[:length], add_generation_prompt=add_generation_prompt)
            except RenderError as again:
                if str(again) == str(error):
                    culprit = length - 1
                    break
        system = normal[culprit]["role"] == "system"
        merge = ", set tokenizer.system to merge_into_user" if system else ""
        return Finding(
            "template-refuses",
            error.said(
                self.name,
                refused_role(normal, culprit),
                self._frozen.count("\n") - self.text.count("\n"),
            ),
            field=f"messages[{culprit + shift}].role",
            fix=f"change the row{merge}, or pin another template than {self.name} "
            "(tokenizer.chat_template)",
        )
