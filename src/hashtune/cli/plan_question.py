"""A question to `hashtune plan`: a base, settings as Hydra overrides, a machine or all of them.

Settings have the names that they have in conf/: the options are short for overrides of the same
composition that `hashtune compose` makes. Rows are taken as one document each, of which every token
is trained, which is the most memory that rows of this length can need.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hashtune.errors import Finding, InputError, nearest
from hashtune.memory.cards import Card, cheapest, every_card, nearest_to_fit, on_machine
from hashtune.memory.decisions import Surroundings, decide
from hashtune.memory.family_shapes import common_names
from hashtune.memory.known_models import Base, find_base
from hashtune.memory.limits import MOST_ROWS, MOST_TOKENS
from hashtune.memory.of_spec import workload
from hashtune.memory.positions import check_positions
from hashtune.memory.report import describe
from hashtune.memory.shapes import read_shape
from hashtune.memory.sharding import Sharding, Strategy
from hashtune.packing.worst_row import StepShape
from hashtune.spec.composition import compose, parse
from hashtune.spec.hardware import no_unit, read_hardware
from hashtune.spec.load import validate
from hashtune.spec.origins import located
from hashtune.spec.schema import Hardware, Spec
from hashtune.spec.training import training_findings

Made = TypeVar("Made")
ALL = "all"
PRECISION = "precision=bf16"  # of a question that names none; conf/config.yaml's is the demo's
ANY_CARD = "h100"  # composed where all are asked, so that choices that need CUDA are possible
TOKENS = 1_000_000
# Options, and more than anyone has: where searches for rows and micro-batches end
COUNTS = {"seq": MOST_TOKENS, "micro": MOST_ROWS, "tokens": 10**15, "gpus": 1 << 17}
STRATEGIES: dict[str, Strategy] = {"ddp": "ddp", "fsdp": "full", "hybrid": "hybrid"}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: `overrides` as composed, `machines` to compare, `only` the one to explain."""

    base: Base
    spec: Spec
    overrides: list[str]
    machines: list[Hardware]
    only: Hardware | None
    tokens: int
    sharding: Sharding | None

    @property
    def assumed(self) -> str:
        """What the question left open, in words."""
        told = "one document a row, every token trained; "
        if self.sharding is not None:
            told += f"memory of one of {self.sharding.world} GPUs ({self.sharding.strategy}), "
            told += "communication takes no time; "
        return f"{told}hours and cost for {self.tokens:,} tokens"


def question(arguments: argparse.Namespace, root: Path) -> Question:
    """The question that the arguments put.

    Raises:
        InputError: everything that is wrong with them, at once.
    """
    findings = [*_arguments(arguments), *_sharing(arguments)]
    machines = read_hardware(root)
    named = arguments.hardware or ALL
    if named != ALL and named not in machines:
        message = f"there is no conf/hardware/{named}.yaml; {_meant(named, [*machines, ALL])}"
        findings.append(Finding("usage", message, field="--hardware", fix=_names(machines)))
    base = _caught(findings, lambda: find_base(arguments.model))
    overrides, twice = _overrides(arguments, named if named in machines else ANY_CARD)
    findings += twice
    spec = None if twice else _caught(findings, lambda: _compose(root, overrides))
    if spec is not None and named != ALL:
        findings += no_unit(spec.hardware, spec.precision)
    if spec is not None and base is not None:
        findings += _impossible(spec, base)
    if findings or base is None or spec is None:
        raise InputError(findings)
    return Question(
        base=base,
        spec=spec,
        overrides=overrides if named != ALL else [o for o in overrides if o[:9] != "hardware="],
        machines=list(machines.values()),
        only=None if named == ALL else spec.hardware,
        tokens=arguments.tokens or TOKENS,
        sharding=shared(arguments.gpus, arguments.sharding, arguments.shard_size),
    )


def ask(asked: Question) -> dict[str, Any]:
    """The answer, as reports/plan.json has it for a checkout, of the machine that is asked for or
    that answers which one."""
    spec, length = asked.spec, asked.spec.data.max_seq_len
    worst = StepShape(
        row=0, longest_row=length, trained=length, masked=False, context=float(length)
    )
    work = workload(spec, read_shape(asked.base.config), worst)
    around = Surroundings(
        hardware=spec.hardware,
        precision=spec.precision,
        context=worst.context,
        grad_accum=spec.batch.grad_accum,
        positions=asked.base.positions,
        sharding=asked.sharding,
    )
    cards = every_card(work, around, asked.machines, tokens=asked.tokens)
    machine = asked.only or _to_explain(cards, asked.machines)
    here = next(card for card in cards if card.name == machine.name)
    work = on_machine(work, here.precision, machine)
    around = replace(around, hardware=machine, precision=here.precision)
    report = describe(work, decide(work, around), here.time, cards, currency=machine.currency)
    return report | {
        "hardware": machine.name,
        "precision": spec.precision,
        "base": asked.base.name,
        "nominal": asked.base.nominal,
        "source": asked.base.source,
        "settings": asked.overrides,
        "gpus": asked.sharding.world if asked.sharding else 1,
        "sharding": asked.sharding.strategy if asked.sharding else None,
    }


def _to_explain(cards: Sequence[Card], machines: Sequence[Hardware]) -> Hardware:
    """The cheapest that fits, else the cheapest that changes make fit, else the one with most
    memory."""
    best = cheapest(cards) or nearest_to_fit(cards)
    if best is None:
        return max(machines, key=lambda machine: machine.memory_gb)
    return next(machine for machine in machines if machine.name == best.name)


def _arguments(arguments: argparse.Namespace) -> list[Finding]:
    """Numbers below 1, or absurd."""
    return [
        finding
        for name, most in COUNTS.items()
        if (given := getattr(arguments, name)) is not None
        for finding in _count(f"--{name}", given, most, typed=f"--{name} ")
    ]


def _count(field: str, given: int, most: int, *, typed: str) -> list[Finding]:
    if given < 1:
        message, fix = f"is {given}, must be at least 1", f"{typed}1"
    elif given > most:
        message, fix = f"is {given}, at most {most:,} make sense", f"{typed}{most} or less"
    else:
        return []
    return [Finding("bad-count", message, field=field, fix=fix)]


def _impossible(spec: Spec, base: Base) -> list[Finding]:
    """Settings that this base cannot have, or no machine."""
    length, micro, known = spec.data.max_seq_len, spec.batch.micro, common_names(base.config)
    found = _count("data.max_seq_len", length, MOST_TOKENS, typed="data.max_seq_len=")
    found += _count("batch.micro", micro, MOST_ROWS, typed="batch.micro=")
    hidden = known.get("hidden_size")
    if isinstance(hidden, int) and (spec.method.r or 0) > hidden:
        # every linear module reads or writes vectors of hidden_size
        message = f"is {spec.method.r}, above the base's hidden_size {hidden}: no rank is as high"
        found.append(
            Finding("bad-rank", message, field="method.r", fix=f"method.r={hidden} or less")
        )
    virtual, what = spec.method.virtual_tokens or 0, "a row of data.max_seq_len"
    try:
        check_positions(known, longest=length, virtual=virtual, what=what, file=None)
    except InputError as error:
        found += error.findings
    return found


def _sharing(arguments: argparse.Namespace) -> Iterator[Finding]:
    """What does not go together among the options for several GPUs."""
    gpus, size = arguments.gpus or 1, arguments.shard_size
    if arguments.sharding is not None and gpus == 1:
        message = "one GPU shares nothing"
        yield Finding("contradiction", message, field="--sharding", fix="--gpus 2 or more")
    if (arguments.sharding == "hybrid") != (size is not None):
        message = "goes with --sharding hybrid, and hybrid needs it"
        yield Finding("contradiction", message, field="--shard-size", fix="give both, or neither")
    elif size is not None and (size < 1 or gpus % size):
        message = f"{gpus} GPUs do not make groups of {size}"
        yield Finding("bad-count", message, field="--shard-size", fix="a divisor of --gpus")


def shared(gpus: int | None, named: str | None, size: int | None) -> Sharding | None:
    """How so many GPUs share the model; None for one."""
    if gpus is None or gpus == 1:
        return None
    strategy: Strategy = STRATEGIES[named or "ddp"]
    return Sharding(strategy, world=gpus, shard_size=size or 1)


def _overrides(arguments: argparse.Namespace, hardware: str) -> tuple[list[str], list[Finding]]:
    """The Hydra overrides that the options stand for, then those given as such; and a finding for
    each setting that is given in both ways."""
    short = {"method": "method", "data.max_seq_len": "seq", "batch.micro": "micro"}
    made = {
        key: f"{key}={value}"
        for key, name in short.items()
        if (value := getattr(arguments, name)) is not None
        and (name not in COUNTS or 1 <= value <= COUNTS[name])  # else told by _arguments
    }
    made["hardware"] = f"hardware={hardware}"
    given = {override.partition("=")[0]: override for override in arguments.overrides}
    twice = [
        Finding("contradiction", "is given twice", field=made[key], fix=f"leave {given[key]} away")
        for key in made
        if key in given
    ]
    assumed = [] if "precision" in given else [PRECISION]
    return [*made.values(), *assumed, *arguments.overrides], twice


def _compose(root: Path, overrides: Sequence[str]) -> Spec:
    spec = validate(parse(compose(root, overrides)))
    if findings := training_findings(spec):
        raise InputError(located(findings, root, overrides))
    return spec


def _caught(findings: list[Finding], make: Callable[[], Made]) -> Made | None:
    """What is made, or None with its findings added."""
    try:
        return make()
    except InputError as error:
        findings += error.findings
        return None


def _meant(named: str, machines: Sequence[str]) -> str:
    """Those whose name is a part of what was given or the other way round, else the closest."""
    given = named.lower()
    alike = [repr(machine) for machine in machines if given in machine or machine in given]
    return f"did you mean {' or '.join(alike)}?" if alike else nearest(named, machines)


def _names(machines: Iterable[str]) -> str:
    return f"one of {', '.join([*machines, ALL])}"
