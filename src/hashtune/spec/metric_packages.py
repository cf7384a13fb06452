"""Metrics that optional packages compute: which package, in which one version.

requirements.lock does not hold them, and they decide scores: so the version is part of the code,
and a spec that asks for another, or for none, is refused before anything runs.
"""

from collections.abc import Iterator
from importlib import metadata
from typing import Final

from hashtune.errors import Finding
from hashtune.spec.schema import Task

PACKAGES: Final = {  # metric: (package, version)
    "rouge_l": ("rouge-score", "0.1.2"),
    "bleu": ("sacrebleu", "2.6.0"),
    "chrf": ("sacrebleu", "2.6.0"),
}
JSON_SCHEMA: Final = ("jsonschema", "4.26.0")
VLLM: Final = ("vllm", "0.33.0")


def metric_findings(metric: str) -> Iterator[Finding]:
    """A finding when the metric's package is not installed in its one version."""
    if metric not in PACKAGES:
        return
    yield from _package(metric, *PACKAGES[metric], field="data.task.metric")


def json_schema_findings(task: Task) -> Iterator[Finding]:
    """The same for the package that holds answers against a JSON Schema."""
    if task.json_schema is not None:
        yield from _package("a JSON Schema", *JSON_SCHEMA, field="data.task.json_schema")


def engine_findings(engine: str) -> Iterator[Finding]:
    """The same for the engine that answers."""
    if engine == "vllm":
        what, field, rule = "the engine vllm", "evaluation.engine", "engine-package"
        yield from _package(what, *VLLM, field=field, rule=rule)


def _package(
    what: str, package: str, version: str, *, field: str, rule: str = "metric-package"
) -> Iterator[Finding]:
    try:
        found = f"{metadata.version(package)} is installed"
    except metadata.PackageNotFoundError:
        found = "it is not installed"
    if found != f"{version} is installed":
        yield Finding(
            rule,
            f"{what} needs {package} {version}; {found}",
            file="params.yaml",
            field=field,
            fix=f"pip install {package}=={version}",
        )
