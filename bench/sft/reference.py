"""The loss that a plain loop gives before any update: one row at a time, fp32, full logits."""

import json
import sys

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM

from sft.job import read_job, read_rows


def main() -> None:
    """Loss and trained tokens of each group of rows."""
    job, groups = read_job(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(job.threads)
    model = AutoModelForCausalLM.from_pretrained(
        job.base, dtype=torch.float32, local_files_only=True
    ).to(job.device)
    rows = read_rows(job)
    found = []
    for group in groups:
        loss, trained = 0.0, 0
        for number in group:
            labels = torch.tensor(rows[number]["labels"], device=job.device)[1:]
            ids = torch.tensor([rows[number]["input_ids"]], device=job.device)
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, :-1]
            loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
            trained += int((labels != -100).sum())
        found.append([loss / trained, trained])
    print(json.dumps({"losses": found}))


if __name__ == "__main__":
    main()
