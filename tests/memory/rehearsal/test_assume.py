"""What is taken for granted of CUDA's kernels, by hand."""

import torch

from hashtune.memory.rehearsal.assume import assume, flash_backward
from hashtune.memory.rehearsal.live import Stage, follow


def test_the_backward_of_flash_attention() -> None:
    """4 heads, 2 key heads, 100 tokens (128 in blocks), width 16, bf16."""
    query, key = torch.zeros(1, 4, 100, 16), torch.zeros(1, 2, 100, 16)
    query, key = query.bfloat16(), key.bfloat16()
    dq_accum, softmax_d = 4 * 128 * 16 * 4, 4 * 128 * 4
    repeated = 2 * (4 * 100 * 16 * 2)  # dk and dv for all heads
    assert flash_backward((query, query, key, key)) == dq_accum + softmax_d + repeated
    assert flash_backward((query, query, query, query)) == dq_accum + softmax_d


def test_it_is_held_only_meanwhile() -> None:
    def step(stage: Stage) -> None:
        query = torch.zeros(1, 2, 128, 16, requires_grad=True)
        result = torch.nn.functional.scaled_dot_product_attention(
            query, query, query, is_causal=True
        )
        stage.phase("backward")
        result.sum().backward()

    cpu, cuda = follow(step), follow(step, assumed=assume("cuda"))
    assert cuda.phases["backward"].end == cpu.phases["backward"].end
    inside = [birth for birth in cuda.events.births if "workspace of aten" in birth.line]
    assert [birth.size for birth in inside] == [2 * 128 * 17 * 4]
    assert "flash attention" in cuda.assumed[0]
    assert assume("cpu").notes == ()
