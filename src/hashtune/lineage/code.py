"""Which code and which libraries decide a stage's bits.

The closure of a stage is every first-party module it imports, directly or not, lazily or not,
found with `ast` (nothing is executed). A module counts by the hash of its AST without docstrings,
so a comment changes nothing; a third-party package counts by its locked version unless it can only
print or transport (NEUTRAL). An unknown package counts: safe by default.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from hashtune.errors import Finding, InputError

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FIRST_PARTY = ("hashtune", "hydra_plugins")
# They print, log, transport or organise; the bits of an output do not pass through them.
NEUTRAL = frozenset(
    {
        *("dvc", "dvclive", "gto", "rich", "tqdm", "typer", "typer-slim", "click", "colorama"),
        *("pygments", "markdown-it-py", "mdurl", "shellingham", "psutil", "filelock", "fsspec"),
        *("requests", "urllib3", "certifi", "charset-normalizer", "idna", "truststore", "hf-xet"),
        *("aiohttp", "httpx", "httpx2", "httpcore", "httpcore2", "h11", "anyio", "sniffio"),
        *("setuptools", "pip", "wheel", "packaging", "typing-extensions", "typing-inspection"),
        *("annotated-types", "annotated-doc"),
    }
)


@dataclass(frozen=True, slots=True)
class Closure:
    """Module name to AST hash, and the top-level names of third-party imports."""

    modules: dict[str, str]
    imports: frozenset[str]


def module_path(name: str, src: Path) -> Path | None:
    """File of a first-party module below src/, or None when `name` is no module."""
    base = src.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def foreign_code(root: Path, *, fix: str) -> list[Finding]:
    """A finding unless the code that runs lies in src/hashtune below `root`: an editable install
    makes `dvc exp run --queue` and `--temp` run the main workspace's code, and an active .venv of
    another clone makes `hashtune` run that clone's. Wrong results would enter the run cache."""
    own, running = (root / "src/hashtune").resolve(), Path(__file__).resolve().parent.parent
    if own == running:
        return []
    message = f"the code that runs is {running}, outside this checkout"
    return [Finding("foreign-code", message, fix=fix)]


def imported_names(tree: ast.AST) -> Iterable[str]:
    """Every dotted name that an import statement in the tree may load, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ast_hash(tree: ast.Module) -> str:
    """Hex sha256 of the tree without docstrings and positions."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        documented = isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None
        if documented and isinstance(body, list):
            body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


@cache
def _parsed(text: str, file: str) -> tuple[tuple[str, ...], str]:
    """Imported names and AST hash of a module's text; stages share most of their modules."""
    tree = ast.parse(text, filename=file)
    return tuple(imported_names(tree)), ast_hash(tree)


def closure(module: str, src: Path) -> Closure:
    """The import closure of a first-party module, parents' __init__ included."""
    modules: dict[str, str] = {}
    third_party: set[str] = set()
    queue = [module]
    while queue:
        name = queue.pop()
        if name.split(".")[0] not in FIRST_PARTY:
            third_party.add(name.split(".")[0])
            continue
        queue += [name.rpartition(".")[0]] if "." in name else []
        path = module_path(name, src)
        if name in modules or path is None:
            continue
        names, modules[name] = _parsed(path.read_text(encoding="utf-8"), str(path))
        queue += names
    return Closure(modules, frozenset(third_party))


def normal(name: str) -> str:
    """A distribution name in PEP 503 form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str, *, file: str) -> dict[str, str]:
    """Distribution to version from the `name==version` lines of a lock file."""
    pins = re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", text, flags=re.M)
    if not pins:
        raise InputError(Finding("empty-lock", "pins nothing", file=file, fix="make lock"))
    return {normal(name): version for name, version in pins}


def needs(distribution: str) -> set[str]:
    """Names an installed distribution requires in this environment, without its extras."""
    from packaging.requirements import Requirement

    found = set()
    for line in metadata.requires(distribution) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.add(normal(requirement.name))
    return found


def packages(imports: Iterable[str], lock: Mapping[str, str]) -> dict[str, str]:
    """Locked version of every package that can change the bits of code with these imports."""
    distributions = metadata.packages_distributions()
    queue = sorted({normal(d) for name in imports for d in distributions.get(name, ())})
    counted: dict[str, str] = {}
    while queue:
        name = queue.pop()
        if name in counted or name in NEUTRAL or name not in lock:
            continue
        counted[name] = lock[name]
        queue += sorted(needs(name))
    return counted


def import_findings(imports: Iterable[str], lock: Mapping[str, str]) -> list[Finding]:
    """Every third-party import that is not installed, or that the lock does not pin."""
    distributions = metadata.packages_distributions()
    findings = []
    for name in sorted(set(imports) - sys.stdlib_module_names):
        found = {normal(distribution) for distribution in distributions.get(name, ())}
        if not found:
            findings.append(_environment(f"{name} is imported but not installed"))
        elif not found & lock.keys():
            findings.append(_environment(f"{name} is imported but not pinned", fix="make lock"))
    return findings


def environment_findings(counted: Iterable[str], lock: Mapping[str, str]) -> list[Finding]:
    """Every counted package that is not installed in its locked version.

    A local version label (torch 2.13.0+cpu) fits its public version: one lock serves CPU and CUDA.
    """
    findings = []
    for name in sorted(set(counted)):
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            findings.append(_environment(f"{name} is pinned but not installed"))
            continue
        if installed.split("+")[0] != lock[name].split("+")[0]:
            message = f"{name} {installed} is installed, the lock pins {lock[name]}"
            findings.append(_environment(message))
    return findings


def _environment(message: str, fix: str = "pip install -r requirements.lock") -> Finding:
    return Finding("environment-differs", message, file="requirements.lock", fix=fix)
