"""What is wrong with the head's spec by itself: the review still tells its changes.

Files that the spec names are not looked at, since a revision in Git need not hold them; `hashtune
check` says the rest.
"""

from collections.abc import Mapping
from typing import Any

from hashtune.errors import Finding, InputError
from hashtune.spec.hardware import no_unit
from hashtune.spec.load import validate
from hashtune.spec.training import training_findings


def spec_findings(params: Mapping[str, Any]) -> list[Finding]:
    """Every field that breaks the schema; of a spec without such, the choices that contradict."""
    try:
        spec = validate(dict(params))
    except InputError as error:
        return error.findings
    return [*training_findings(spec), *no_unit(spec.hardware, spec.precision)]
