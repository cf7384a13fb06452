"""Metrics that optional packages compute: which package, in which one version.

requirements.lock does not hold them, and they decide scores: so the version is part of the code,
and a spec that asks for another, or for none, is refused before anything runs.
"""

from collections.abc import Iterator
from importlib import metadata
from typing import Final

from hashtune.errors import Finding

PACKAGES: Final = {  # metric: (package, version)
    "rouge_l": ("rouge-score", "0.1.2"),
    "bleu": ("sacrebleu", "2.6.0"),
    "chrf": ("sacrebleu", "2.6.0"),
}


def metric_findings(metric: str) -> Iterator[Finding]:
    """A finding when the metric's package is not installed in its one version."""
    if metric not in PACKAGES:
        return
    package, version = PACKAGES[metric]
    try:
        found = f"{metadata.version(package)} is installed"
    except metadata.PackageNotFoundError:
        found = "it is not installed"
    if found != f"{version} is installed":
        yield Finding(
            "metric-package",
            f"{metric} needs {package} {version}; {found}",
            file="params.yaml",
            field="data.task.metric",
            fix=f"pip install {package}=={version}",
        )
