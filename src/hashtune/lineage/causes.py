"""Why a rebuilt stage differs from the recorded one: the likely cause, from what the two left.

Each rule looks at one kind of trace; the first that finds one answers, the strongest first.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hashtune.lineage.verdict import WAS_ANOTHER

KINDS = ("environment", "code", "threads", "data", "spec")  # of inputs, the strongest first
# stages whose floats depend on the processor; the others count, sort and copy
ON_THE_PROCESSOR = ("replay", "train", "baseline", "evaluate", "regress")
REFUSALS = (
    ("environment", ("environment-differs",)),
    ("code", ("changed-code", "foreign-code")),
    ("data", ("pin-differs", "no-file", "no-data", "tree-differs", "wheel-differs", "remote")),
    ("spec", ("stale-params", "stray-params", "untracked-conf", "contradiction")),
)


@dataclass(frozen=True)
class Traces:
    """What is known of the first stage that differs.

    Attributes:
        stage: its name.
        inputs: of verdict.other_inputs.
        code: build/code/<stage>.json of both where it is had, recorded first; empty otherwise.
        machines: reports/machine/<stage>.json of both, recorded first; {} where there is none.
        variables: environment variables that the stage's code names, with the module.
    """

    stage: str
    inputs: Sequence[str] = ()
    code: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    machines: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cause:
    """kind: environment, code, threads, data, spec, hardware, mixed run, undeclared input or
    refused; `words` say what was seen."""

    kind: str
    words: str


def likely_cause(traces: Traces) -> Cause:
    """The likely cause of a difference in the outputs, or in the inputs, of a stage."""
    rules = (_code, _inputs, _mixed, _hardware)
    return next((cause for rule in rules if (cause := rule(traces))), _undeclared(traces))


def refusal(output: Sequence[str]) -> Cause:
    """The cause of a stage that refused to run, from the rules in what it printed."""
    text = "\n".join(output)
    rules = re.findall(r"\[([a-z][a-z0-9-]*)\]", text)
    for kind, known in REFUSALS:
        if found := next((rule for rule in rules if rule in known), None):
            line = next(line for line in output if f"[{found}]" in line)
            return Cause(kind, line.strip())
    if rules:
        line = next(line for line in output if f"[{rules[0]}]" in line)
        return Cause("refused", line.strip())
    return Cause("refused", next((line.strip() for line in reversed(output) if line.strip()), ""))


def _code(traces: Traces) -> Cause | None:
    if traces.code is None:
        return None
    recorded, rebuilt = traces.code
    if recorded.get("python") != rebuilt.get("python"):
        words = f"Python {rebuilt.get('python')}, recorded with {recorded.get('python')}"
        return Cause("environment", words)
    if found := _changed(recorded.get("packages", {}), rebuilt.get("packages", {})):
        return Cause("environment", f"other libraries: {found}")
    ours, theirs = recorded.get("modules", {}), rebuilt.get("modules", {})
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    return Cause("code", f"other code in {', '.join(names)}") if names else None


def _changed(recorded: Mapping[str, str], rebuilt: Mapping[str, str]) -> str:
    names = sorted(n for n in {*recorded, *rebuilt} if recorded.get(n) != rebuilt.get(n))
    return ", ".join(
        f"{n} {rebuilt.get(n, 'absent')}, recorded with {recorded.get(n, 'none')}" for n in names
    )


def _inputs(traces: Traces) -> Cause | None:
    if not traces.inputs:
        return None
    kinds = sorted({_kind(text) for text in traces.inputs}, key=KINDS.index)
    return Cause(kinds[0], f"dvc.lock was made with other inputs: {'; '.join(traces.inputs)}")


def _kind(text: str) -> str:
    known = {"determinism.threads": "threads", "requirements.lock": "environment", "src": "code"}
    name = text.split(maxsplit=1)[0]
    return known.get(name) or ("data" if text.endswith(WAS_ANOTHER) else "spec")


def _mixed(traces: Traces) -> Cause | None:
    """A run that was killed and resumed has the bits of a straight one, unless what it was resumed
    with is not what it began with."""
    begun = traces.machines[0].get("first_step_of_this_process", 1)
    if traces.stage != "train" or begun == 1:
        return None
    words = (
        f"the recorded run was resumed at step {begun}: the steps before it are of another state, "
        "other code or another machine"
    )
    return Cause("mixed run", words)


def _hardware(traces: Traces) -> Cause | None:
    if traces.stage not in ON_THE_PROCESSOR:
        return None
    recorded, rebuilt = traces.machines
    for key in ("device", "cores", "versions"):
        ours, theirs = recorded.get(key), rebuilt.get(key)
        if ours is not None and theirs is not None and ours != theirs:
            return Cause("hardware", f"{key}: {theirs}, recorded on {ours}")
    return None


def _undeclared(traces: Traces) -> Cause:
    named = ", ".join(f"{name} ({module})" for name, module in sorted(traces.variables.items()))
    also = f"; its code names the environment variables {named}" if named else ""
    return Cause(
        "undeclared input",
        f"same inputs, code and libraries, yet another output: {traces.stage} reads something "
        f"that dvc.yaml does not name (a file, an environment variable, the clock){also}",
    )
