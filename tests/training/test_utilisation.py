"""MFU and HFU: worked values, computed by hand."""

import pytest

from hashtune.training.utilisation import Work, attention_sizes, utilisation

H100 = 989.0  # TFLOP/s, dense bf16


def work(*, frozen: int = 0, trainable: int = 0, recomputed: bool = False) -> Work:
    again, blocks = (frozen + trainable, 32) if recomputed else (0, 0)
    return Work(frozen, trainable, layers=32, width=4096, again=again, layers_again=blocks)


def share(flops: float) -> float:
    """Percent of an H100 at 3,000 tokens/s, one digit."""
    return round(100 * utilisation(flops, tokens_per_second=3000, peak_tflops=H100), 1)


def test_8b_in_full_is_14_6_percent() -> None:
    full = work(trainable=8_000_000_000)
    assert full.model_flops(context=0) == 48_000_000_000  # 6 * 8e9
    assert share(full.model_flops(context=0)) == 14.6  # 48e9 * 3000 = 144e12 of 989e12


def test_8b_in_full_with_recomputation_keeps_its_mfu() -> None:
    full = work(trainable=8_000_000_000, recomputed=True)
    assert share(full.model_flops(context=0)) == 14.6
    assert full.hardware_flops(context=0) == 64_000_000_000  # 8 * 8e9
    assert share(full.hardware_flops(context=0)) == 19.4  # 192e12 of 989e12


def test_8b_lora_is_9_7_percent_and_14_6_in_hardware_when_it_recomputes() -> None:
    lora = work(frozen=8_000_000_000)
    assert share(lora.model_flops(context=0)) == 9.7  # 4 * 8e9 * 3000 = 96e12 of 989e12
    assert lora.hardware_flops(context=0) == lora.model_flops(context=0)
    again = work(frozen=8_000_000_000, recomputed=True)
    assert share(again.model_flops(context=0)) == 9.7
    assert share(again.hardware_flops(context=0)) == 14.6  # 6 * 8e9, the reference's LoRA figure


def test_an_adapter_counts_as_trained() -> None:
    both = work(frozen=1000, trainable=10)
    assert both.model_flops(context=0) == 4060  # 4 * 1000 + 6 * 10


def test_attention_counts_at_long_context() -> None:
    # 12 * 32 * 4096 * 8192
    assert work().model_flops(context=8192) == 12_884_901_888
    assert work(recomputed=True).hardware_flops(context=8192) == 17_179_869_184  # a third more


def test_twice_the_speed_is_twice_the_utilisation() -> None:
    once = utilisation(1e9, tokens_per_second=100, peak_tflops=1.0)
    assert once == pytest.approx(0.1)  # 1e11 of 1e12
    assert utilisation(1e9, tokens_per_second=200, peak_tflops=1.0) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (work(frozen=9, trainable=1), "4 per frozen and 6 per trained parameter, 12 L d T"),
        (work(trainable=1), "6 per trained parameter, 12 L d T"),
    ],
)
def test_the_convention_is_said(found: Work, text: str) -> None:
    assert found.convention.startswith(f"FLOPs per token: {text}")


def test_sizes_of_attention_from_config_json() -> None:
    config = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 40}
    assert attention_sizes(config) == (3, 4, 10)
    assert attention_sizes(config, head_dim=16) == (3, 4, 16)  # what the model type fixes
    assert attention_sizes(config | {"head_dim": 8}, head_dim=16) == (3, 4, 8)
    assert attention_sizes(config | {"head_dim": None}) == (3, 4, 10)
