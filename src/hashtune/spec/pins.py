"""Every input is pinned by content or by an immutable revision, or the spec is refused.

Checked before anything is downloaded or computed; also rules that join two fields.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from hashtune.errors import Finding
from hashtune.spec.branch import branch_findings
from hashtune.spec.init_adapter import init_findings
from hashtune.spec.methods import FULL, SOFT
from hashtune.spec.metric_packages import engine_findings, json_schema_findings, metric_findings
from hashtune.spec.places import absence, is_lfs_pointer, place
from hashtune.spec.resolution import resolution_findings
from hashtune.spec.rows import (
    REMOTE,
    address_fault,
    field_faults,
    policy_faults,
    remote_scheme,
    secret_fault,
)
from hashtune.spec.schema import HeldOut, Source, Spec
from hashtune.spec.training import training_findings
from hashtune.spec.user_metric import source_file, user_metric_findings
from hashtune.writers import sha256_file

COMMIT = re.compile(r"[0-9a-f]{40}")
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # no option, no address: pip gets it
VERSION = re.compile(r"\d+(\.\d+)*([a-z]+\d+)?")
FILE = "params.yaml"
FETCHED = ("data.sources", "data.eval", "data.test")  # what prepare fetches from a URL


def check_pins(spec: Spec, root: Path) -> list[Finding]:
    """All findings about pins and contradicting fields; files are read below `root`."""
    return [
        *_base_model(spec),
        *_init_adapter(spec, root),
        *_branch(spec, root),
        *_data(spec),
        *_declarations(spec),
        *_plain_text(spec),
        *_files(spec, root),
        *_contradictions(spec),
        *training_findings(spec),
        *resolution_findings(spec, root),
        *metric_findings(spec.data.task.metric),
        *engine_findings(spec.evaluation.engine),
        *json_schema_findings(spec.data.task),
        *user_metric_findings(spec.data.task, root),
    ]


def _finding(field: str, message: str, fix: str, rule: str = "unpinned") -> Finding:
    return Finding(rule, message, file=FILE, field=field, fix=fix)


def _base_model(spec: Spec) -> Iterator[Finding]:
    base = spec.base_model
    if base.source == "hub" and not COMMIT.fullmatch(base.revision):
        yield _finding(
            "base_model.revision",
            f"{base.revision!r} is not a commit: a branch or tag can move",
            "give the 40-hex commit of the repo",
        )
    if base.source == "wheel" and not VERSION.fullmatch(base.revision):
        yield _finding(
            "base_model.revision", f"{base.revision!r} is no exact version", "give one version"
        )
    if base.source == "wheel" and not PACKAGE.fullmatch(base.repo):
        yield _finding("base_model.repo", f"{base.repo!r} is no package name", "name one package")
    if base.source == "synthetic" and not base.revision.isdigit():
        yield _finding("base_model.revision", f"{base.revision!r} is no seed", "give an integer")
    if base.source in ("wheel", "path") and base.sha256 is None:
        yield _finding(
            "base_model.sha256", "is missing", f"a {base.source} base is pinned by its sha256"
        )
    if base.source == "wheel" and base.file is None:
        yield _finding("base_model.file", "is missing", "name the weight file inside the wheel")


def _init_adapter(spec: Spec, root: Path) -> list[Finding]:
    pin = spec.base_model.init_adapter
    return init_findings(pin, spec.method, spec.tokenizer.added_tokens, root) if pin else []


def _branch(spec: Spec, root: Path) -> list[Finding]:
    pin = spec.schedule.branch_from
    return branch_findings(pin, root) if pin else []


def _data(spec: Spec) -> Iterator[Finding]:
    held: tuple[tuple[str, HeldOut], ...] = (("eval", spec.data.eval), ("test", spec.data.test))
    for name, part in held:
        if part.uri is not None and part.sha256 is None:
            yield _finding(f"data.{name}.sha256", "is missing", f"sha256sum {part.uri}")
        if part.uri is None and part.fraction == 0.0:
            yield _finding(
                f"data.{name}",
                "has neither a file nor a fraction",
                f"set data.{name}.uri or data.{name}.fraction",
                rule="no-held-out",
            )
        if part.uri is not None and part.fraction > 0.0:
            yield _finding(
                f"data.{name}.fraction",
                f"{part.fraction:g} of the sources, and data.{name}.uri names a file",
                "set the fraction to 0.0, or the file to null",
                rule="contradiction",
            )
    replay = spec.data.replay
    if replay.uri is not None and replay.sha256 is None:
        yield _finding("data.replay.sha256", "is missing", f"sha256sum {replay.uri}")
    if replay.share >= 1.0 or (replay.uri is None and replay.share > 0.0):
        yield _finding(
            "data.replay.share",
            f"{replay.share} of the mix cannot be replay",
            "lower the share, or give data.replay.uri",
            rule="replay-share",
        )


def _declarations(spec: Spec) -> Iterator[Finding]:
    """Field mappings and policies that name what does not exist; added tokens that add nothing."""
    entries: list[tuple[str, Source | HeldOut]] = [
        (f"data.sources[{i}]", source) for i, source in enumerate(spec.data.sources)
    ]
    entries += [("data.eval", spec.data.eval), ("data.test", spec.data.test)]
    for field, entry in entries:
        for target, message in field_faults(entry.schema_, entry.fields):
            yield Finding("fields", message, file=FILE, field=f"{field}.fields.{target}")
    added = spec.tokenizer.added_tokens
    for index, text in enumerate(added):
        if not text.strip() or text in added[:index]:
            message = f"{text!r} is {'there twice' if text.strip() else 'blank'}"
            where = f"tokenizer.added_tokens[{index}]"
            yield Finding("added-tokens", message, file=FILE, field=where, fix="remove it")
    for key, message in policy_faults(spec.cleaning.on_bad_row):
        yield Finding("policy", message, file=FILE, field=f"cleaning.on_bad_row.{key}")


def _plain_text(spec: Spec) -> Iterator[Finding]:
    """The gate scores answers; a plain text asks nothing, so none may be a test item."""
    test, sources = spec.data.test, spec.data.sources
    if test.uri is not None:
        texts = ["data.test"] if test.schema_ == "text" else []
    else:
        texts = [f"data.sources[{i}]" for i, of in enumerate(sources) if of.schema_ == "text"]
    for field in texts:
        yield _finding(
            f"{field}.schema",
            "plain text cannot be a test item: it holds no question and no answer to score",
            "give data.test a file of conversations (eval may be plain text, for the loss)",
            rule="text-test",
        )


def pinned_files(spec: Spec) -> list[tuple[str, str, str]]:
    """(field, path or URL, sha256) of every file the spec pins."""
    pins = [
        (f"data.sources[{i}]", source.uri, source.sha256)
        for i, source in enumerate(spec.data.sources)
    ]
    optional = (
        ("data.replay", spec.data.replay.uri, spec.data.replay.sha256),
        ("data.eval", spec.data.eval.uri, spec.data.eval.sha256),
        ("data.test", spec.data.test.uri, spec.data.test.sha256),
    )
    pins += [(field, uri, pin) for field, uri, pin in optional if uri and pin]
    pins += [
        (f"regression.suites[{i}]", suite.uri, suite.sha256)
        for i, suite in enumerate(spec.regression.suites)
    ]
    pins += [
        (f"cleaning.patterns[{i}]", file.uri, file.sha256)
        for i, file in enumerate(spec.cleaning.patterns)
    ]
    if (metric := spec.data.task.user_metric) is not None:
        pins.append(("data.task.user_metric", source_file(metric), metric.sha256))
    if (schema := spec.data.task.json_schema) is not None:
        pins.append(("data.task.json_schema", schema.uri, schema.sha256))
    if spec.tokenizer.chat_template != "base":
        pins.append(("tokenizer", spec.tokenizer.chat_template, spec.tokenizer.sha256))
    return pins


def _url(uri: str, scheme: str, field: str) -> Iterator[Finding]:
    fault = address_fault(uri) if scheme in REMOTE else secret_fault(uri)
    if fault:
        rule, message, fix = fault
        yield Finding(rule, message, file=FILE, field=field, fix=fix)
    elif scheme not in REMOTE or not field.startswith(FETCHED):
        yield Finding(
            "outside-root",
            f"{uri!r} is a URL that no stage fetches",
            file=FILE,
            field=field,
            fix="https:// or s3:// for sources, eval and test; else a file under data/",
        )


def _files(spec: Spec, root: Path) -> Iterator[Finding]:
    for field, uri, pin in pinned_files(spec):
        path, there = place(root, uri)
        if scheme := remote_scheme(uri):
            yield from _url(uri, scheme, field)
        elif not path.is_relative_to(root.resolve()):
            yield Finding(
                "outside-root",
                f"{uri!r} leaves the project",
                file=FILE,
                field=field,
                fix="put the file under data/",
            )
        elif not there:
            message, fix = absence(root, uri)
            yield Finding("no-file", f"{uri!r} {message}", file=FILE, field=field, fix=fix)
        elif (found := sha256_file(path)) != pin:
            yield Finding(
                "pin-differs",
                f"{uri} has sha256 {found}, the spec pins {pin}",
                file=FILE,
                field=f"{field}.sha256",
                fix="this is a Git LFS pointer: git lfs pull"
                if is_lfs_pointer(path)
                else "restore the file, or pin the new content in conf/",
            )


def _contradictions(spec: Spec) -> Iterator[Finding]:
    quantized = spec.quantization.type != "none"
    # a prompt or prefix is the same over either base: no matrix beside a quantised one; methods.py
    # has a finding of its own for full
    free = spec.method.type in {*SOFT, FULL}
    if not free and (spec.method.type == "qlora") != quantized:
        yield _finding(
            "method.type",
            f"{spec.method.type} over quantization.type {spec.quantization.type}",
            "choose method=qlora for a quantised base, method=lora for none",
            rule="contradiction",
        )
    if spec.checkpoint.eval_every_steps % spec.checkpoint.every_steps:
        yield _finding(
            "checkpoint.eval_every_steps",
            f"{spec.checkpoint.eval_every_steps} is no multiple of checkpoint.every_steps "
            f"{spec.checkpoint.every_steps}: the best step might have no checkpoint",
            "make it a multiple",
            rule="contradiction",
        )
    if spec.data.task.metric == "json_fields" and not spec.data.task.fields:
        yield _finding("data.task.fields", "is empty", "name the fields", rule="contradiction")
