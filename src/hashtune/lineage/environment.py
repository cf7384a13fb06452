"""What a stage's code could read besides its inputs, as far as it can be seen without running it:
the environment variables that are named in its import closure."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from hashtune.lineage.code import module_path

# what our own code may read: places and listeners, none of which changes a bit of an output
PLACES = frozenset({"HASHTUNE_HOME", "HASHTUNE_TRACKERS", "HASHTUNE_PROCESSES"})


def variables_read(modules: Iterable[str], src: Path) -> dict[str, str]:
    """Environment variable to the module that reads it, for the variables that are named in one.

    Found with `ast`: os.environ[NAME], os.environ.get(NAME), NAME in os.environ and os.getenv(NAME)
    where NAME is a text or a constant of the module. A name that is computed shows as "?".
    """
    found: dict[str, str] = {}
    for module in sorted(modules):
        path = module_path(module, src)
        if path is None:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for name in _names(tree):
            found.setdefault(name, module)
    return found


def _names(tree: ast.Module) -> Iterator[str]:
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        argument = _argument(node)
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value
        elif argument is not None:
            yield constants.get(argument.id, "?") if isinstance(argument, ast.Name) else "?"


def _argument(node: ast.AST) -> ast.expr | None:
    """The expression that names a variable, if this node reads one."""
    if isinstance(node, ast.Subscript) and _is_environ(node.value):
        return node.slice if isinstance(node.ctx, ast.Load) else None
    if isinstance(node, ast.Compare) and any(_is_environ(c) for c in node.comparators):
        return node.left
    if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
        of_environ = node.func.attr in ("get", "pop", "setdefault") and _is_environ(node.func.value)
        return node.args[0] if of_environ or node.func.attr == "getenv" else None
    return None


def _is_environ(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )
