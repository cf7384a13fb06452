"""The adapter on the base's linear modules: PEFT's settings, and that it took what it was told.

Names of modules are held against method.targets here (spec/targets.py), and PEFT gets full names.
PEFT 0.21 reads some of them as those of an older transformers: where a base has experts fused into
one parameter, "gate_proj" of a dense layer becomes the experts' parameter
(peft/utils/transformers_weight_conversion.py). So what carries an adapter is counted afterwards.
"""

import warnings
from collections.abc import Sequence
from typing import Any

from torch import nn

from hashtune.errors import Finding, InputError
from hashtune.spec.schema import Method
from hashtune.training.tokens import trainable_rows

SAMPLES = 3
FIELD = "method.targets"


def linear_names(base: Any) -> list[str]:
    """Full names of the linear modules without the head, as PEFT reads "all-linear"."""
    head = base.get_output_embeddings()
    linear = (pair for pair in base.named_modules() if isinstance(pair[1], nn.Linear))
    return [name for name, module in linear if module is not head]


def lora_config(base: Any, method: Method, targets: Sequence[str], tokens: Sequence[int]) -> object:
    """PEFT's configuration of LoRA and its variants over these modules."""
    from peft import LoraConfig

    config: object = LoraConfig(
        r=method.r,
        lora_alpha=method.alpha,
        lora_dropout=method.dropout,
        use_rslora=method.variant == "rslora",
        use_dora=method.variant == "dora",
        target_modules=list(targets),
        task_type="CAUSAL_LM",
        trainable_token_indices=trainable_rows(base, tokens),
    )
    return config


def put_on(base: Any, config: object, targets: Sequence[str]) -> Any:
    """The PEFT model of a configuration, with an adapter on exactly these modules.

    Args:
        base: changed in place.
        config: PEFT's.
        targets: full names of the modules that shall carry an adapter; none for virtual tokens.

    Raises:
        InputError: PEFT does not take them, or puts the adapter on others.
    """
    from peft import get_peft_model

    _refuse_other_products(base, targets)
    try:
        with warnings.catch_warnings():  # peft 0.21 asks transformers 5.24 by an old name
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
            # said of what it moves to fused experts, which is refused below
            warnings.filterwarnings("ignore", message=".*keys did not match any targeted module.*")
            peft = get_peft_model(base, config, autocast_adapter_dtype=True)
    except ValueError as error:
        message = f"PEFT does not take it on this base: {str(error).partition('. ')[0]}"
        if not targets:
            finding = Finding("method", message, file="params.yaml", field="method.type")
            raise InputError(finding) from error
        raise InputError(_fault(message, _attention(targets))) from error
    if targets:
        _check_adapted(adapted_names(peft), targets)
    return peft


def _refuse_other_products(base: Any, targets: Sequence[str]) -> None:
    """Routers of Llama 4 and Phi-MoE are linear modules that give several results: PEFT's layer
    fails in its first forward."""
    others = [name for name in targets if _computes_more(base.get_submodule(name))]
    if others:
        kinds = ", ".join(sorted({type(base.get_submodule(name)).__name__ for name in others}))
        message = f"matches {len(others)} modules that are more than a product ({kinds}), first "
        message += _samples(others)
        raise InputError(_fault(message, sorted({*targets} - {*others})))


def _computes_more(module: Any) -> bool:
    """Whether its class, of a model's own code, has another forward than a linear layer."""
    own = type(module).__module__.startswith("transformers.models.")
    return own and type(module).forward is not nn.Linear.forward


def adapted_names(peft: Any) -> list[str]:
    """Full names in the base of what carries a LoRA adapter, sorted: modules, and modules that own
    an adapted parameter."""
    modules = peft.get_base_model().named_modules()
    return sorted(name for name, module in modules if hasattr(module, "lora_A"))


def _check_adapted(adapted: Sequence[str], targets: Sequence[str]) -> None:
    left, more = sorted({*targets} - {*adapted}), sorted({*adapted} - {*targets})
    if not left and not more:
        return
    parts = [(left, "it leaves out"), (more, "it takes also")]
    told = [f"{what} {len(names)}, first {_samples(names)}" for names, what in parts if names]
    message = f"PEFT puts the adapter on other modules of this base: {'; '.join(told)}"
    raise InputError(_fault(message, sorted({*targets} & {*adapted})))


def _attention(targets: Sequence[str]) -> list[str]:
    """What PEFT never moves to fused experts."""
    return [name for name in targets if "attn" in name or "attention" in name]


def _fault(message: str, usable: Sequence[str]) -> Finding:
    endings = sorted({name.rpartition(".")[2] for name in usable})
    fix = f"{FIELD}=[{','.join(endings)}]" if endings else "name other modules"
    return Finding("target", message, file="params.yaml", field=FIELD, fix=fix)


def _samples(names: Sequence[str]) -> str:
    return ", ".join(names[:SAMPLES])
