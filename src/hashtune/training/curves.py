"""Training curves through dvclive, replayed from the checkpoint on resume.

dvclive's own resume starts at 0 here and its defaults rewrite dvc.yaml, so both stay off. Only
deterministic values go in: the curves are an output.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hashtune.training.trackers import Trackers


class Curves:
    """Logs points {"step": n, "train/loss": x, ...} as they come; trackers get them too."""

    def __init__(
        self,
        folder: Path,
        points: Sequence[Mapping[str, Any]],
        trackers: Trackers | None = None,
    ) -> None:
        from dvclive import Live

        self._live = Live(str(folder), dvcyaml=None, report=None, save_dvc_exp=False)
        self._trackers = trackers
        self._number = 0
        if trackers is not None:
            trackers.start()
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
        self._number += 1
        if self._trackers is not None:
            self._trackers.log(self._number, point)

    def end(self) -> None:
        """Write dvclive's summary, close the trackers."""
        self._live.make_summary()
        if self._trackers is not None:
            self._trackers.end()
