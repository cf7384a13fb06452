"""The model of a config on fake tensors: shapes, types and storages of a loaded base, no weights.

The skeleton is made on the meta device and then filled tensor by tensor, as from_pretrained does;
transformers' own quantiser puts its modules in and bitsandbytes packs each fake weight, so that
what it holds meanwhile is followed too.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from hashtune.memory.rehearsal.quantised import packed
from hashtune.store.loader import not_loaded


def fake_base(
    config: Mapping[str, Any],
    *,
    dtype: torch.dtype,
    quantization_config: object | None = None,
    rows: int = 0,
    attention: str = "sdpa",
) -> Any:
    """A transformers causal LM in eval mode, to be called inside a FakeTensorMode.

    Args:
        config: the content of config.json.
        dtype: of the weights that stay unquantised.
        quantization_config: what transformers takes (BitsAndBytesConfig), or None.
        rows: the embedding gets at least so many, for added tokens.
        attention: transformers' name of the attention function.

    Raises:
        InputError: transformers has no such model, or none with this attention.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = dict(config)
    try:
        known = AutoConfig.for_model(settings.pop("model_type"), **settings)
        text = known.get_text_config()
        text.vocab_size = max(text.vocab_size, rows)
        with _disable_current_modes(), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                known, dtype=dtype, attn_implementation=attention
            )
    except ValueError as error:
        raise not_loaded(error) from error
    quantiser = None
    if quantization_config is not None:
        from transformers.quantizers import AutoHfQuantizer

        quantiser = AutoHfQuantizer.from_config(quantization_config, pre_quantized=False)
        with _disable_current_modes():
            quantiser.preprocess_model(model, device_map={"": "cpu"})
    fill(model, dtype)
    if quantiser is not None:
        quantiser.postprocess_model(model)
    return model.eval()


def fill(model: nn.Module, dtype: torch.dtype) -> None:
    """Put tensors in place of those on the meta device, shared ones once; call it in the mode that
    is to make them. `dtype`: of a weight before it is packed."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                if id(parameter) not in made:
                    made[id(parameter)] = _parameter(parameter, module, dtype)
                module._parameters[name] = made[id(parameter)]
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = _empty(buffer)


def _parameter(skeleton: nn.Parameter, module: nn.Module, dtype: torch.dtype) -> nn.Parameter:
    """A weight as it is loaded, and packed where bitsandbytes packs it."""
    if type(skeleton) is nn.Parameter:
        return nn.Parameter(_empty(skeleton), requires_grad=skeleton.requires_grad)
    loaded = torch.empty(skeleton.shape, dtype=dtype, device="cpu")
    return packed(skeleton, loaded, module)


def _empty(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device="cpu")


@contextmanager
def fake_modules() -> Iterator[None]:
    """Modules of fake tensors can be converted and copied meanwhile.

    A module changes type and device by giving its parameters other data: torch swaps fake ones,
    which it refuses where something refers to them weakly, as a FakeTensorMode does to each. And
    tensors are copied by an operation: torch copies the storage, which a fake one has not.
    """
    before = nn.Module._apply, Tensor.__deepcopy__
    nn.Module._apply, Tensor.__deepcopy__ = _apply, _copied
    try:
        yield
    finally:
        nn.Module._apply, Tensor.__deepcopy__ = before


def _apply(module: Any, change: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
    for child in module.children() if recurse else ():
        child._apply(change)
    with torch.no_grad():
        for parameter in module._parameters.values():
            if parameter is not None:
                parameter.data = change(parameter)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = change(buffer)
    return module


def _copied(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(tensor) not in memo:
        copied = tensor.detach().clone()
        if isinstance(tensor, nn.Parameter):
            copied = nn.Parameter(copied, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = copied
    found: Tensor = memo[id(tensor)]
    return found
