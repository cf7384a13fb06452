"""A base of random weights for measurements: what is timed does not depend on what they say.

    python bench/sft/random_base.py FOLDER --tokenizer OTHER_BASE [--layers 16 ...]

FOLDER gets a Llama in the given shape (by default of the 1B class) in bf16, and the tokenizer and
chat template of OTHER_BASE ("$(hashtune base)"). Same arguments and libraries, same weights.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM


def main(given: Sequence[str] | None = None) -> int:
    """Write the folder, and say how large the model is."""
    wanted = arguments(given)
    tokenizer = AutoTokenizer.from_pretrained(wanted.tokenizer, local_files_only=True)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=wanted.hidden,
        num_hidden_layers=wanted.layers,
        num_attention_heads=wanted.heads,
        num_key_value_heads=wanted.kv_heads,
        intermediate_size=wanted.intermediate,
        max_position_embeddings=wanted.positions,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(wanted.seed)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(wanted.folder)
    tokenizer.save_pretrained(wanted.folder)
    print(f"{wanted.folder}: {sum(p.numel() for p in model.parameters()):,} parameters")
    return 0


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", required=True, help="folder of a base that has one")
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--intermediate", type=int, default=8192)
    parser.add_argument("--positions", type=int, default=8192, help="longest row that it is for")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(given)


if __name__ == "__main__":
    raise SystemExit(main())
