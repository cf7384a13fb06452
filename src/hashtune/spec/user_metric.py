"""A metric of the user's own: a function in a file of the project, pinned by the file's sha256.

`path` is dotted: mymetrics.score is the function score in mymetrics.py, eval.mine.score that in
eval/mine.py. The pin is of that one file, so it may import installed packages, and nothing from the
project; what it says is read here without running it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from hashtune.errors import Finding
from hashtune.spec.places import place
from hashtune.spec.schema import Task, UserMetric

FIELD = "data.task.user_metric"
PARAMS = "params.yaml"


def source_file(metric: UserMetric) -> str:
    """The file of a dotted path, relative to the project."""
    *modules, _ = metric.path.split(".")
    return "/".join(modules) + ".py"


def function_name(metric: UserMetric) -> str:
    """The last part of the dotted path."""
    return metric.path.rpartition(".")[2]


def declared_findings(task: Task) -> Iterator[Finding]:
    """The metric is the user's, and none is named; or one is named, and another metric counts."""
    if task.metric == "user" and task.user_metric is None:
        fix = "give its path and sha256"
        yield Finding("contradiction", "is null", file=PARAMS, field=FIELD, fix=fix)
    if task.metric != "user" and task.user_metric is not None:
        message = f"is given, and data.task.metric is {task.metric}"
        fix = "data.task.metric=user, or user_metric null"
        yield Finding("contradiction", message, file=PARAMS, field=FIELD, fix=fix)


def source_findings(metric: UserMetric, source: bytes, root: Path) -> list[Finding]:
    """What keeps the pinned source from being run: no Python, no such function, imports from the
    project (their content is not pinned)."""
    file = source_file(metric)
    try:
        tree = ast.parse(source, filename=file)
    except (SyntaxError, ValueError) as error:
        return [Finding("user-metric", f"is no Python: {error}", file=file, field=FIELD)]
    name, findings = function_name(metric), []
    if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
        message = f"defines no function {name}"
        findings.append(Finding("user-metric", message, file=file, field=f"{FIELD}.path"))
    for node in ast.walk(tree):
        findings += [
            Finding(
                "user-metric",
                f"imports {module or 'relatively'}, which lies in the project and is not pinned",
                file=file,
                line=getattr(node, "lineno", None),
                field=FIELD,
                fix="keep the metric in one file",
            )
            for module in _imports(node)
            if not module or _in_project(module, root)
        ]
    return findings


def user_metric_findings(task: Task, root: Path) -> Iterator[Finding]:
    """All of the above for the spec; that the file is there and has its hash is told with the other
    pinned files."""
    yield from declared_findings(task)
    if task.user_metric is None:
        return
    path, there = place(root, source_file(task.user_metric))
    if there and path.is_relative_to(root.resolve()):
        yield from source_findings(task.user_metric, path.read_bytes(), root)


def _imports(node: ast.AST) -> list[str]:
    """Top-level names that an import statement loads; an empty one for a relative import."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").split(".")[0] if node.level == 0 else ""]
    return []


def _in_project(module: str, root: Path) -> bool:
    return any(
        (folder / f"{module}.py").is_file() or (folder / module).is_dir()
        for folder in (root, root / "src")
    )
