"""Training curves through dvclive, replayed from the checkpoint on resume.

dvclive's own resume starts at 0 here and its defaults rewrite dvc.yaml, so both stay off. Only
deterministic values go in: the curves are an output.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Curves:
    """Logs points {"step": n, "train/loss": x, ...} as they come."""

    def __init__(self, folder: Path, points: Sequence[Mapping[str, Any]]) -> None:
        from dvclive import Live

        self._live = Live(str(folder), dvcyaml=None, report=None, save_dvc_exp=False)
        for point in points:
            self.log(point)

    def log(self, point: Mapping[str, Any]) -> None:
        """Write one point, its names sorted.

        A checkpoint's JSON gives them back sorted, and the order of the summary must not tell a
        resumed run from a straight one.
        """
        self._live.step = point["step"]
        for name, value in sorted(point.items()):
            if name != "step":
                self._live.log_metric(name, value)

    def end(self) -> None:
        """Write dvclive's summary."""
        self._live.make_summary()
