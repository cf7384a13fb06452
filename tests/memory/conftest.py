"""The shapes and the step that the worked values are about."""

import pytest

from hashtune.memory.shapes import Shape, read_shape
from hashtune.memory.workload import Workload


@pytest.fixture
def llama_8b() -> Shape:
    """Llama 3.1 8B: 8,030,261,248 parameters."""
    return read_shape(
        {
            "model_type": "llama",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
        }
    )


@pytest.fixture
def qwen3_4b() -> Shape:
    """Qwen3 4B: 4,022,468,096 parameters."""
    return read_shape(
        {
            "model_type": "qwen3",
            "hidden_size": 2560,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 9728,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        }
    )


@pytest.fixture
def lora_8b(llama_8b: Shape) -> Workload:
    """One row of 4,096 tokens, LoRA r16 on all linear modules, bf16 with an fp32 adapter."""
    return Workload(
        shape=llama_8b,
        quantization="none",
        double_quant=True,
        precision="bf16",
        optimizer="adamw",
        variant="lora",
        r=16,
        targets="all-linear",
        dropout=False,
        micro=1,
        longest_row=4096,
        trained=4096,
        masked=False,
        loss_chunk=512,
        device="cuda",
        overhead_bytes=1_500_000_000,
    )
