"""Read params.yaml: one YAML loader for every stage, strict sections, all findings at once.

OmegaConf's loader is the one DVC's composition writes for: 1e-4 is a float, not a text.
"""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hashtune.errors import Finding, InputError, nearest
from hashtune.spec.alternatives import faults
from hashtune.spec.schema import Section, Spec

PARAMS = Path("params.yaml")
WAY_BACK = "change it in conf/ or with -S, then `hashtune compose` or `dvc exp run`"


def read_params(path: Path = PARAMS) -> dict[str, Any]:
    """The whole of params.yaml as plain data; InputError when it is missing or no mapping."""
    from omegaconf import OmegaConf
    from yaml import YAMLError

    if not path.is_file():
        raise InputError(
            Finding("no-params", "is missing", file=str(path), fix="run `hashtune compose`")
        )
    try:
        data = OmegaConf.to_container(OmegaConf.load(path))
    except (YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise InputError(
            Finding("yaml", text, file=str(path), fix="run `hashtune compose`")
        ) from error
    if not isinstance(data, dict):
        raise InputError(Finding("yaml", "is no mapping", file=str(path), fix=WAY_BACK))
    return {str(key): value for key, value in data.items()}


def read_spec(*sections: str, path: Path = PARAMS) -> Spec:
    """The named sections of the spec, validated; touching another one raises AttributeError.

    With no names the whole spec is validated, unknown sections included.
    """
    params = read_params(path)
    if not sections:
        return validate(params, file=str(path))
    findings: list[Finding] = []
    values: dict[str, Any] = {}
    for name in sections:
        kind: Any = Spec.model_fields[name].annotation
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        try:
            values[name] = adapter.validate_python(params.get(name), strict=True)
        except ValidationError as error:
            findings += _findings(error, prefix=(name,), params=params, file=str(path))
    if findings:
        raise InputError(findings)
    return Spec.model_construct(_fields_set=set(values), **values)


def validate(params: dict[str, Any], *, file: str = "params.yaml") -> Spec:
    """The whole spec; InputError lists every field that breaks the schema."""
    try:
        return Spec.model_validate(params)
    except ValidationError as error:
        raise InputError(_findings(error, prefix=(), params=params, file=file)) from error


def _findings(
    error: ValidationError, *, prefix: tuple[str, ...], params: dict[str, Any], file: str
) -> list[Finding]:
    found = []
    for fault in faults(error, prefix, params):
        message = fault.message
        if fault.kind == "extra_forbidden":
            message = f"unknown key; {nearest(str(fault.path[-1]), _known(fault.path[:-1]))}"
        elif fault.kind in {"model_type", "model_attributes_type"}:  # pydantic names our class
            message = f"needs the fields {', '.join(_known(fault.path))}"
        field = _dotted(fault.path)
        found.append(Finding("schema", message, file=file, field=field, fix=WAY_BACK))
    return found


def _dotted(path: tuple[Any, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def _known(path: tuple[Any, ...]) -> list[str]:
    """Field names of the section at `path` (list indices skipped)."""
    section: type[Section] = Spec
    for part in path:
        if isinstance(part, int):
            continue
        for name, field in section.model_fields.items():
            if part in (name, field.alias):
                section = _section_type(field.annotation)
    return [field.alias or name for name, field in section.model_fields.items()]


def _section_type(annotation: Any) -> type[Section]:
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate
    return Section
