"""What follows from changing each setting of the run spec.

Every leaf of the schema has an entry, its own or that of a section it lies in; a test refuses a
setting without one, and compares the groups with the params that dvc.yaml gives each stage.
"""

from dataclasses import dataclass
from enum import StrEnum


class Group(StrEnum):
    """Consequences, the dearest first; the values are headings."""

    TOKENS = "Changes the training tokens"
    WEIGHTS = "Changes what is learned from the same tokens"
    VERDICT = "Changes what the verdict means"
    COST = "Changes only speed, memory or cost"
    NAMES = "Changes names only"


T, W, V, C, N = Group


@dataclass(frozen=True, slots=True)
class Consequence:
    """Where a change is listed, and what it does, as the end of a sentence."""

    groups: tuple[Group, ...]
    words: str


CONSEQUENCES: dict[str, Consequence] = {
    "run.experiment": Consequence((N,), "names the overlay; what it sets is listed by itself"),
    "conf_sha256": Consequence((N,), "is the stamp of conf/"),
    "precision": Consequence((W, C), "computes in other number types: other bits, speed, memory"),
    "device": Consequence((W, C), "trains on another kind of device: other last digits"),
    "kernels": Consequence((W, C), "computes parts another way: other last digits, speed, memory"),
    "seed": Consequence((W,), "draws dropout and noise anew: a difference of noise, no better run"),
    "data_seed": Consequence((W,), "puts the rows into another order"),
    "init_seed": Consequence((W,), "begins from another fresh adapter"),
    "base_model": Consequence((T, W, V), "is another base: other weights, maybe another tokenizer"),
    "base_model.name": Consequence((N,), "names the base"),
    "base_model.init_adapter": Consequence((W,), "continues from another adapter"),
    "tokenizer": Consequence((T, V), "renders conversations otherwise, in training and evaluation"),
    "tokenizer.added_tokens": Consequence((T, W, V), "adds tokens whose rows are trained"),
    "tokenizer.date": Consequence((T, V), "is the date that templates print"),
    "tokenizer.stops": Consequence(
        (T, V), "ends turns otherwise: what is trained, where answers end"
    ),
    "data": Consequence((T,), "selects or cuts conversations otherwise"),
    "data.name": Consequence((N,), "names the data"),
    "data.sources": Consequence((T,), "is what the adapter is trained on"),
    "data.replay": Consequence(
        (T,), "mixes more, fewer or other answers of the base into training"
    ),
    "data.eval": Consequence((W,), "is another eval set: its losses choose checkpoints and stops"),
    "data.test": Consequence((V,), "is another test set: scores before and after do not compare"),
    "data.max_rows": Consequence((T,), "trains on more or fewer conversations"),
    "data.max_seq_len": Consequence(
        (T, C), "keeps or drops long examples; longer rows need memory"
    ),
    "data.packing": Consequence((T, C), "puts documents into rows otherwise: other steps"),
    "data.loss_on": Consequence((T,), "trains other tokens of the same conversations"),
    "data.over_length": Consequence((T,), "treats examples beyond max_seq_len otherwise"),
    "data.task": Consequence((V,), "scores answers otherwise, or tells the base something else"),
    "cleaning": Consequence((T,), "keeps, drops or alters other rows"),
    "cleaning.leakage_ngram": Consequence(
        (T, V), "finds other rows that training shares with test"
    ),
    "cleaning.leakage_near": Consequence(
        (T, V), "finds other near copies of test rows in training"
    ),
    "cleaning.leakage_groups": Consequence(
        (T, V), "treats groups in both train and test otherwise"
    ),
    "cleaning.leakage_action": Consequence((T, V), "treats rows that leak into test otherwise"),
    "cleaning.leakage_max_share": Consequence((T, V), "allows more or less leakage"),
    "quantization": Consequence((W, C), "stores the frozen base otherwise: other values, memory"),
    "method": Consequence((W, C), "trains other parameters, or as many in another way"),
    "optim": Consequence((W,), "updates the weights otherwise"),
    "optim.name": Consequence((W, C), "updates the weights otherwise and keeps another state"),
    "optim.master_weights": Consequence((W, C), "keeps the trained weights in another type"),
    "schedule": Consequence((W,), "changes the learning rate over the steps"),
    "duration": Consequence((W, C), "trains longer or shorter"),
    "batch": Consequence((W, C), "changes the rows of a step"),
    "batch.micro": Consequence((W, C), "changes rows per micro-batch: memory, and rows per step"),
    "batch.grad_accum": Consequence((W, C), "changes micro-batches per step: time, rows per step"),
    "batch.attention": Consequence((W, C), "keeps documents apart another way: other last digits"),
    "batch.layout": Consequence((W, C), "lays a step's rows out otherwise: other last digits"),
    "activations": Consequence((C,), "computes activations again or moves them: time for memory"),
    "determinism": Consequence((W, V), "sums in another order, or without a promise of same bits"),
    "checkpoint.every_steps": Consequence((C,), "writes resume states more or less often"),
    "checkpoint.keep_last": Consequence((C,), "keeps more or fewer resume states"),
    "checkpoint.eval_every_steps": Consequence((W, C), "evaluates at other steps"),
    "checkpoint.select": Consequence((W,), "makes another checkpoint the adapter"),
    "checkpoint.early_stop_patience": Consequence((W,), "ends training earlier or later"),
    "checkpoint.max_skipped_steps": Consequence((W,), "tolerates more or fewer skipped steps"),
    "checkpoint.samples": Consequence((C,), "answers more or fewer sample prompts while training"),
    "checkpoint.keep_stable": Consequence((C,), "keeps a state for branches"),
    "evaluation": Consequence((V,), "decodes answers otherwise: scores do not compare"),
    "evaluation.base_precision": Consequence((T, V), "loads the base otherwise to answer"),
    "evaluation.engine": Consequence(
        (V, C), "answers through another engine: other last digits, near ties may turn"
    ),
    "evaluation.noise_items": Consequence(
        (V, C), "measures the noise floor on more or fewer items: what counts as no difference"
    ),
    "evaluation.likelihood_items": Consequence(
        (V, C), "takes perplexity of more or fewer references; the gate does not read it"
    ),
    "evaluation.batch_size": Consequence((V, C), "answers in other batches: near ties may turn"),
    "regression": Consequence((V,), "asks other regression items, or lets answers be longer"),
    "regression.suites": Consequence((V, T), "is another suite; train rows that leak from it go"),
    "eval_gate": Consequence((V,), "asks more or less of an adapter that ships"),
    "release.name": Consequence((N,), "names the artifact"),
    "plan": Consequence((C,), "rehearses the step, or stops a run that exceeds its plan; no bits"),
    "hardware": Consequence((C,), "is what the plan reckons with"),
}


def consequence(key: str) -> Consequence:
    """The entry of a dotted key, or of the nearest section above it.

    Raises:
        KeyError: neither has one.
    """
    name = key
    while name not in CONSEQUENCES:
        if "." not in name:
            raise KeyError(key)
        name = name.rpartition(".")[0]
    return CONSEQUENCES[name]
