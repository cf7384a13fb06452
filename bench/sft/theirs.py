"""TRL's side: SFTTrainer on the same ids and labels, without activation checkpointing.

Its default turns checkpointing on, which is slower; its fused AdamW, its loss without full logits
and its own packing are as TRL has them. The order of rows is ours.
"""

import json
import os
import sys
import tempfile
from typing import Any

import torch
from rounds import clocks, memory

from sft.job import ALPHA, CLIP, LAYOUTS, LR, RANK, Job, order, rates, read_job, read_rows


def main() -> None:
    """One epoch over the rows."""
    job = read_job(sys.argv[1])
    torch.set_num_threads(job.threads)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = folder  # before datasets is imported: its cache
        trainer, ends = trainer_of(job, folder)
        trainer.train()
    tokens = trainer.tokens
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    report = {
        **rates(ends, tokens, warmup=job.warmup),
        "peak_bytes": memory(job.device),
        "first_loss": losses[0],
        "first_trained": trainer.first_trained,
        "first_rows": sorted(trainer.first_rows),
        "measured_tokens": sum(tokens[job.warmup :]),
        "last_loss": losses[-1],
    }
    print(json.dumps(report))


def trainer_of(job: Job, folder: str) -> tuple[Any, list[tuple[float, float]]]:
    """The trainer, and when its steps end, on the clock and in CPU time."""
    from datasets import Dataset, disable_caching, disable_progress_bars
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

    disable_caching()
    disable_progress_bars()
    examples = read_rows(job)
    numbers = order([len(example["input_ids"]) for example in examples], job.layout)
    data = Dataset.from_dict(
        {key: [examples[n][key] for n in numbers] for key in ("input_ids", "labels")}
    )
    ends: list[tuple[float, float]] = []

    class Ends(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(clocks(job.device))

    dtype = torch.bfloat16 if job.precision == "bf16" else torch.float32
    trainer = counting_trainer()(
        model=AutoModelForCausalLM.from_pretrained(
            job.base, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        ),
        args=settings(job, folder),
        train_dataset=data,
        processing_class=AutoTokenizer.from_pretrained(job.base, local_files_only=True),
        peft_config=LoraConfig(
            r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        callbacks=[Ends()],
    )
    trainer.numbers = {tuple(e["input_ids"]): n for n, e in enumerate(examples)}
    return trainer, ends


def settings(job: Job, folder: str) -> Any:
    """What TRL is told."""
    from trl import SFTConfig

    micro, accumulation = LAYOUTS[job.layout]
    return SFTConfig(
        output_dir=folder,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulation,
        num_train_epochs=1,
        max_length=job.max_length,
        packing=job.layout == "packed",
        train_sampling_strategy="sequential",
        gradient_checkpointing=False,
        bf16=job.precision == "bf16",
        use_cpu=job.device == "cpu",
        learning_rate=LR,
        lr_scheduler_type="constant",
        max_grad_norm=CLIP,
        optim="adamw_torch_fused",
        weight_decay=0.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def counting_trainer() -> Any:
    """SFTTrainer that counts the tokens of each step and notes the rows of the first."""
    from trl import SFTTrainer

    class Counting(SFTTrainer):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.tokens: list[int] = []
            self.first_rows: list[int] = []
            self.first_trained = 0
            self.numbers: dict[tuple[int, ...], int] = {}

        def training_step(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
            found = documents(inputs)
            if len(self.tokens) == self.state.global_step:
                self.tokens.append(0)
            self.tokens[-1] += sum(map(len, found))
            if self.state.global_step == 0:
                self.first_rows += [self.numbers[document] for document in found]
                self.first_trained += int((inputs["labels"][:, 1:] != -100).sum())
            return super().training_step(model, inputs, *rest, **more)

    return Counting


def documents(inputs: Any) -> list[tuple[int, ...]]:
    """The ids of each document of a micro-batch, without padding."""
    if "attention_mask" in inputs:
        pairs = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
        return [tuple(ids[mask.bool()].tolist()) for ids, mask in pairs]
    starts = (inputs["position_ids"][0] == 0).nonzero().flatten().tolist()
    ids = inputs["input_ids"][0].tolist()
    edges = zip(starts, [*starts[1:], len(ids)], strict=True)
    return [tuple(ids[start:end]) for start, end in edges]


if __name__ == "__main__":
    main()
