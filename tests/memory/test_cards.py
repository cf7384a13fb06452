"""Every machine of conf/hardware: which fit, which is cheapest."""

from dataclasses import replace
from pathlib import Path

from hashtune.memory.cards import cheapest, every_card, nearest_to_fit, possible
from hashtune.memory.closed_form import Workload
from hashtune.memory.decisions import Surroundings
from hashtune.memory.known_models import find_base
from hashtune.memory.limits import needed_bytes
from hashtune.memory.shapes import read_shape
from hashtune.spec.hardware import read_hardware

MACHINES = read_hardware(Path(__file__).parents[2])
WORK = Workload(
    shape=read_shape(find_base("llama-3.1-8b").config),
    quantization="nf4",
    double_quant=True,
    precision="bf16",
    optimizer="adamw",
    variant="lora",
    r=16,
    targets="all-linear",
    dropout=False,
    micro=1,
    longest_row=1024,
    trained=1024,
    masked=False,
    by_document=True,
    loss_chunk=512,
    device="cuda",
    overhead_bytes=0,
    checkpointing="full",
    fused=True,
)
AROUND = Surroundings(MACHINES["h100"], "bf16", context=1024.0, positions=131072)


def cards(work: Workload = WORK) -> dict:
    found = every_card(work, AROUND, MACHINES.values(), tokens=10**6)
    return {card.name: card for card in found}


def test_each_has_its_own_overhead_and_memory() -> None:
    found = cards()
    assert next(iter(found)) == "cpu"  # by price an hour
    assert found["h100"].needed == needed_bytes(replace(WORK, overhead_bytes=1_500_000_000))
    assert found["h100"].available == 84_900_000_000
    assert [name for name, card in found.items() if not card.fits] == []
    assert found["h200"].longest_row > found["h100"].longest_row > found["t4"].longest_row
    assert found["h200"].largest_micro > found["t4"].largest_micro


def test_a_t4_computes_in_fp16() -> None:
    assert (cards()["t4"].precision, cards()["a10g"].precision) == ("fp16", "bf16")
    assert possible("tf32", MACHINES["cpu"]) == "fp32"
    assert possible("fp16", MACHINES["t4"]) == "fp16"


def test_the_cheapest_costs_least_for_the_run_not_an_hour() -> None:
    """A CPU has no price, and an RTX 4090 is a third of a T4's price per token."""
    found = cards()
    best = cheapest(list(found.values()))
    assert best is not None
    priced = [card for card in found.values() if card.price_per_hour > 0 and card.fits]
    assert best.time.cost == min(card.time.cost for card in priced)
    assert best.name != "cpu"


def test_where_none_fits_the_cheapest_that_a_change_helps() -> None:
    big = replace(WORK, checkpointing="none", longest_row=8192, trained=8192)
    found = cards(big)
    assert cheapest([found["t4"], found["a10g"]]) is None
    near = nearest_to_fit([found["t4"], found["a10g"], found["rtx4090"]])
    assert near is not None
    assert near.path
