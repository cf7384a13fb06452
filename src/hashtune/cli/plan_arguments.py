"""Options of hashtune plan."""

import argparse

from hashtune.cli.parser import whole_number

SHARDING = ("ddp", "fsdp", "hybrid")


def add_arguments(plan: argparse.ArgumentParser) -> None:
    """Add the options of `hashtune plan`."""
    plan.add_argument(
        *("overrides",),
        nargs="*",
        metavar="KEY=VALUE",
        help="with --model: Hydra overrides, as after -S (optim=adamw_8bit activations=full)",
    )
    plan.add_argument(
        "--model", metavar="NAME", help="a known base, a config.json, or a folder with one"
    )
    plan.add_argument("--method", help="short for method=METHOD")
    plan.add_argument("--seq", type=whole_number, metavar="N", help="short for data.max_seq_len=N")
    plan.add_argument("--micro", type=whole_number, metavar="N", help="short for batch.micro=N")
    plan.add_argument("--hardware", metavar="NAME", help="a file of conf/hardware, or all")
    plan.add_argument(
        "--tokens", type=whole_number, metavar="N", help="tokens to train on (default: 1,000,000)"
    )
    plan.add_argument(
        "--gpus", type=whole_number, metavar="N", help="of each machine, sharing the model"
    )
    plan.add_argument(
        "--sharding", choices=SHARDING, help="how they share it (default: ddp, each holds all)"
    )
    plan.add_argument(
        "--shard-size", type=whole_number, metavar="N", help="with hybrid: GPUs of a group"
    )
    plan.add_argument("--json", action="store_true", help="for machines")
