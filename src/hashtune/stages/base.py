"""Which exact weights, tokenizer and template? Resolve the base and record it by content.

reads   the spec's base_model and tokenizer; the network where the store lacks the files
writes  build/base/manifest.json, reports/base.json
cost    default base: download of 93 MB and about a minute to convert, once per machine
"""

from pathlib import Path

from hashtune import frame, writers
from hashtune.errors import Finding, InputError
from hashtune.store.contents import count_parameters, vocabulary_size
from hashtune.store.loader import materialise, resolve
from hashtune.store.manifest import Manifest, Source, manifest_json

OUT = Path("build/base/manifest.json")


def run() -> None:
    """Fetch, verify, store; refuse a template that is not the pinned one."""
    spec = frame.read_spec("base_model", "tokenizer")
    source = Source(
        kind=spec.base_model.source,
        repo=spec.base_model.repo,
        revision=spec.base_model.revision,
        file=spec.base_model.file,
        sha256=spec.base_model.sha256,
    )
    frame.say(f"  {spec.base_model.name}: {source['kind']} {source['repo']} {source['revision']}")
    manifest = resolve(source, name=spec.base_model.name, say=frame.say)
    if spec.tokenizer.chat_template == "base":
        refuse_other_template(manifest, pin=spec.tokenizer.sha256)
    report = describe(manifest)
    writers.write_json(OUT, manifest_json(manifest))
    frame.write_report("base", report)
    frame.closing_table("base", report)


def refuse_other_template(manifest: Manifest, *, pin: str) -> None:
    """InputError unless the base's own chat template has the pinned sha256."""
    found = manifest.template_sha256
    if found == pin:
        return
    rule = "template-differs" if found else "no-template"
    if found:
        message = f"the base's chat template has sha256 {found}, the spec pins {pin}"
        fix = f'set tokenizer.sha256 to "{found}" if you trust this template, or name a file in Git'
    else:
        message = f"{manifest.name} has no chat template, the spec pins {pin}"
        fix = (
            "set tokenizer.chat_template to a template file in Git, tokenizer.sha256 to its hash, "
            "and tokenizer.added_tokens to its control tokens that the base lacks"
        )
    field = "tokenizer.sha256" if found else "tokenizer.chat_template"
    raise InputError(Finding(rule, message, field=field, fix=fix))


def describe(manifest: Manifest) -> dict[str, object]:
    """The report: what the base is and how large."""
    directory = materialise(manifest, say=frame.say)
    weights = [directory / name for name in manifest.files if name.endswith(".safetensors")]
    return {
        "name": manifest.name,
        "source": f"{manifest.source['kind']}:{manifest.source['repo']}",
        "revision": manifest.source["revision"],
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "parameters": count_parameters(weights),
        "vocabulary": vocabulary_size(manifest.config),
        "base_sha256": manifest.key,
        "template_sha256": manifest.template_sha256,
    }


if __name__ == "__main__":
    frame.main("base", run)
