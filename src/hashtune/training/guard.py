"""The gradient-norm guard: a few non-finite steps are skipped and named, more stop the run."""

from collections.abc import Sequence

from hashtune.errors import Finding, InputError


def check_skips(skipped: Sequence[int], *, allowed: int, example_ids: Sequence[str]) -> None:
    """Raise InputError when more steps were skipped than allowed.

    Args:
        skipped: the 1-based steps skipped so far, the newest last.
        allowed: checkpoint.max_skipped_steps.
        example_ids: what the newest skipped step saw.
    """
    if len(skipped) > allowed:
        raise InputError(
            Finding(
                "non-finite",
                f"{len(skipped)} steps with a non-finite loss or gradient ({list(skipped)}); the "
                f"last one saw the examples {', '.join(example_ids)}",
                field="optim.lr",
                fix="lower optim.lr, or look at these examples; `hashtune inspect --id ID`",
            )
        )
