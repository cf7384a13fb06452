"""A margin narrower than what the suites can resolve is refused before anything runs.

An unchanged adapter still answers some items otherwise than its base. With a share d of such items
among n, as many lost as won, the drop is 0 and its upper confidence bound is z * sqrt(d / n):
Wald's bound of a difference of paired proportions (Fleiss, Levin and Paik, Statistical Methods for
Rates and Proportions, 3rd edition, 2003, the chapter on matched samples). Where that exceeds the
margin, an adapter that lost nothing would not pass.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

from hashtune.errors import Finding
from hashtune.spec.places import place
from hashtune.spec.schema import Spec

FILE = "params.yaml"


def resolution(items: int, *, discordant_share: float, confidence: float) -> float:
    """Upper bound of the drop of an unchanged adapter, a difference of mean scores.

    Args:
        items: suite items, at least one.
        discordant_share: share of the items that base and adapter score differently.
        confidence: of the one-sided bound, in (0.5, 1).
    """
    return NormalDist().inv_cdf(confidence) * math.sqrt(discordant_share / items)


def items_to_resolve(margin: float, *, discordant_share: float, confidence: float) -> int:
    """The smallest number of items whose `resolution` is at most `margin` (which is above 0)."""
    exact = discordant_share * (NormalDist().inv_cdf(confidence) / margin) ** 2
    return math.ceil(exact - 1e-9)  # a margin told by `resolution` asks for no item more


def resolution_findings(spec: Spec, root: Path) -> Iterator[Finding]:
    """A finding when the suites under `root` cannot resolve eval_gate.regression_max_drop.

    Nothing without suites (the gate then has no evidence and says so), or while a file is missing
    or no UTF-8 (other findings tell that).
    """
    items, gate = suite_items(spec, root), spec.eval_gate
    if not items:
        return
    settings = {"discordant_share": gate.discordant_share, "confidence": gate.confidence}
    finest, margin = resolution(items, **settings), gate.regression_max_drop
    if finest <= margin:
        return
    fix = f"set it to at least {math.ceil(finest * 1000) / 1000:g}"
    if margin > 0:
        needed = items_to_resolve(margin, **settings)
        fix += f", or give the suites {needed} items (regression.suites, regression.max_items)"
    yield Finding(
        "margin-unresolved",
        f"{items} suite items cannot resolve a drop of {margin:g}: of an adapter that loses "
        f"nothing, but scores {gate.discordant_share:g} of the items otherwise than the base, the "
        f"upper bound is {finest:.4g}",
        file=FILE,
        field="eval_gate.regression_max_drop",
        fix=fix,
    )


def suite_items(spec: Spec, root: Path) -> int:
    """Items that a run of this spec measures: lines of the suite files, at most max_items."""
    total = 0
    for suite in spec.regression.suites:
        path, there = place(root, suite.uri)
        if not there or not path.is_relative_to(root.resolve()):
            return 0
        total += sum(1 for line in path.read_bytes().splitlines() if line.strip())
    most = spec.regression.max_items
    return total if most is None else min(total, most)
