"""A point as the peers' rules ask for it."""

from typing import Any

from published.known import config_of
from published.litgpt_settings import Settings as LitGpt
from published.metamath_settings import Settings as MetaMath
from published.peers import Run
from published.rows import Point

NOMINAL = {"M": 1e-3, "B": 1.0}


def peer_run(point: Point) -> Run | None:
    """None where no rule covers the run: fp32 weights under autocast with an adapter."""
    run = point.run
    if isinstance(run, LitGpt) and run.mixed:
        return None
    known = config_of(point.model)
    config = known["config"]
    full = run.method == "full" if isinstance(run, MetaMath) else run.lora is None
    packed = isinstance(run, LitGpt) and run.quantize != "none"
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    return Run(
        method="full" if full else "lora",
        bits=4 if packed else 16,
        billions=float(known["nominal"][:-1]) * NOMINAL[known["nominal"][-1]],
        parameters=known["parameters"],
        hidden=hidden,
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or hidden // heads,
        intermediate=config["intermediate_size"],
        vocab=config["vocab_size"],
        tied=config["tie_word_embeddings"],
        micro=run.micro,
        tokens=run.tokens,
        r=0 if full else (run.r if isinstance(run, MetaMath) else run.lora.r),
        targets=() if full else _targets(point, config),
        paged=packed,
        eager=config["model_type"] == "gemma2",
    )


def _targets(point: Point, config: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """(inputs, outputs) of each adapted module of the blocks."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    width = config.get("head_dim") or hidden // config["num_attention_heads"]
    query, keys = (config[name] * width for name in ("num_attention_heads", "num_key_value_heads"))
    sizes = {
        "query": [(hidden, query)],
        "key": [(hidden, keys)],
        "value": [(hidden, keys)],
        "projection": [(query, hidden)],
        "mlp": [(hidden, wide), (hidden, wide), (wide, hidden)],
        "head": [],
    }
    run = point.run
    parts = ("query", "value") if isinstance(run, MetaMath) else run.lora.parts
    once = [pair for part in parts for pair in sizes[part]]
    return tuple(once * config["num_hidden_layers"])
