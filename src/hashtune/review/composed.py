"""A revision's params.yaml against its own conf/: what a reviewer cannot see in either alone."""

from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path

from hashtune.errors import InputError
from hashtune.spec.composition import compose, parse
from hashtune.spec.drift import STAMP, Difference, differences, experiment_override
from hashtune.spec.load import read_params
from hydra_plugins.hashtune_conf import conf_sha256

SHOWN = 4


def composed_notices(head: Path) -> Iterator[str]:
    """A sentence where conf/ does not compose, and one where params.yaml has values that conf/ does
    not give: overrides, edits by hand, or a conf/ that was changed without composing.

    Args:
        head: the folder of the revision; composition looks for conf/ from the current folder, so it
            is entered meanwhile.
    """
    params = read_params(head / "params.yaml")
    try:
        with chdir(head):
            conf = parse(compose(Path(), experiment_override(Path(), params)))
    except InputError as error:
        text = " ".join(error.findings[0].message.split()).replace("`", "'")
        yield f"conf/ of the head does not compose: `{text}`. `hashtune compose` refuses it."
        return
    changed = differences(conf, params)
    if changed and params.get(STAMP) == conf_sha256(head):
        yield (
            f"params.yaml holds values that conf/ does not give ({_list(changed)}): given with -S,"
            " or edited by hand. The next `dvc exp run` or `hashtune compose` takes them back; what"
            " shall stay belongs into conf/."
        )
    elif changed:
        yield (
            f"params.yaml does not have what conf/ gives now ({_list(changed)}): results are of"
            " params.yaml. `hashtune compose`, then `dvc repro`."
        )


def _list(changed: Sequence[Difference]) -> str:
    shown = [f"`{str(change).replace('`', chr(39))}`" for change in changed]
    rest = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return "; ".join(shown[:SHOWN]) + rest
