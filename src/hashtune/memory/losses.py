"""The loss: logits, what is computed from them, and the hidden states they come from.

    bytes a position and word   fp32   bf16     what they are
    chunked                     16-20  16-20    hashtune's, of a chunk (training/loss.py)
    full                        16     14       transformers 5.24, loss/loss_utils.py: logits, their
                                                log-softmax, its gradient and that of the logits
    split                       12     6        LitGPT's full fine-tuning: logits in their own type,
                                                the loss 128 at a time, its gradients put together
    listed                      8      4        LitGPT's LoRA: logits 128 positions at a time, all
                                                kept, with their log-softmax
    liger                       of a chunk      Hsu et al. 2024, arXiv 2410.10989: gradients in the
                                                forward, in the logits' own place
    cut                         0               Wijmans et al. 2024, arXiv 2411.09009: no logits

A naive loss upcasts bf16 logits and makes a gradient of their size; that is `full`. A chunk of the
first way and of Liger's does not grow with the row.
"""

from hashtune.memory.workload import FP32, Workload

# CHUNK of training/loss.py and of training/fused/head.py, which import torch; a test compares them
LOSS_CHUNK = 512
HEAD_CHUNK = 128


def full_logits_bytes(*, tokens: int, vocab: int) -> dict[str, int]:
    """What a loss without chunks would hold for `tokens` positions: fp32 logits and a bf16 copy.
    8,192 tokens * 248,320 words: 7.58 GiB and 3.79 GiB; the backward about doubles it."""
    return {"fp32": tokens * vocab * FP32, "bf16": tokens * vocab * 2}


def loss_bytes(work: Workload) -> int:
    """Logits and what is computed from them, the last hidden states and, where only trained
    positions reach the head, those among them. With a trained head also its cast, and behind the
    logits' gradient that of the weight, before and after it is cast back; of several chunks one
    beside the sum of those before, and their sum."""
    states = work.tokens + (work.micro * work.trained if work.loss == "chunked" else 0)
    logits = logits_bytes(work)
    if work.full:
        table, lower = table_elements(work), work.element < work.stored_element
        gradient = table * (work.element + work.stored_element * lower)
        rows = positions(work)
        if several_chunks(work):
            rows, gradient = work.loss_chunk, 3 * table * work.stored_element
        logits = max(logits, rows * work.shape.vocab * work.element + gradient)
        logits += (positions(work) * work.shape.hidden + table) * work.element * lower
    return logits + states * work.shape.hidden * work.residual


def several_chunks(work: Workload) -> bool:
    """Whether hashtune's loss has more than one chunk, which are computed again in the backward."""
    several = work.micro * work.trained > work.loss_chunk
    return work.loss == "chunked" and several and not work.fused_head


def chunk_again_bytes(work: Workload) -> int:
    """The loss of several chunks in its backward: one chunk's log-softmax, its gradient and that of
    the logits, with the states and their gradient."""
    chunk = work.loss_chunk * work.shape.vocab * 3 * FP32
    states = work.tokens + work.micro * work.trained
    return chunk + states * work.shape.hidden * work.residual


def table_elements(work: Workload) -> int:
    """Elements of the head's weight."""
    return work.shape.vocab * work.shape.hidden


def waiting_head(work: Workload) -> int:
    """The gradient of a tied head, which autograd keeps until the embedding's is there."""
    return table_elements(work) * work.stored_element if work.full and work.shape.tied else 0


def embedding(work: Workload) -> int:
    """The embedding's gradient, dense, and of a tied one the head's and their sum."""
    return table_elements(work) * work.stored_element * (3 if work.shape.tied else 1)


def positions(work: Workload) -> int:
    """Positions that have logits: the trained ones in hashtune, all of them elsewhere."""
    return work.micro * work.trained if work.loss == "chunked" else work.tokens


def logits_element(work: Workload) -> int:
    """Bytes of a logit as the head gives it: under autocast of its products' type."""
    return work.element if work.autocast else max(work.element, work.rest_element)


def logits_bytes(work: Workload) -> int:
    """Logits and what is computed from them, at the most."""
    count, vocab, element = positions(work), work.shape.vocab, logits_element(work)
    if work.loss == "chunked":
        return _chunk_bytes(work)
    softmax = FP32 if work.autocast else element
    if work.loss == "full":
        capped = element if work.shape.logit_softcap else 0
        return count * vocab * (element + capped + 3 * FP32)
    if work.loss == "split":
        return count * vocab * (element + max(2 * element, softmax + element))
    if work.loss == "listed":
        chunk = min(work.loss_chunk, count)
        return vocab * (count * (element + softmax) + chunk * 2 * softmax)
    gradients = count * work.shape.hidden * work.residual
    if work.loss == "cut":
        return gradients
    return liger_chunk(count, vocab, work.shape.hidden) * vocab * element + gradients


def liger_chunk(count: int, vocab: int, hidden: int) -> int:
    """Positions of a chunk of Liger's fused loss: so many chunks that one chunk's logits are about
    as large as all hidden states, to a power of two (liger_kernel/ops/fused_linear_cross_entropy.py
    of Liger Kernel 0.5)."""
    parts = -(-vocab // hidden)
    rows = -(-count // parts)
    return 1 << (rows - 1).bit_length()


def _chunk_bytes(work: Workload) -> int:
    """One chunk of logits of hashtune's loss lives at a time, in fp32 in either precision: logits,
    log-softmax for the backward, and for the entropy another log-softmax, its exponential and their
    product. With more than one chunk each is recomputed in the backward, so one of the five is not
    kept. Fused: log-softmax and probabilities, and the latter rounded for the product that gives
    the chunk's part of the gradient of all states."""
    trained = work.micro * work.trained
    if work.fused_head:
        rounded = work.element if work.element < FP32 else 0
        chunk = work.shape.vocab * (2 * FP32 + rounded) + work.shape.hidden * work.element
        return min(HEAD_CHUNK, trained) * chunk + trained * work.shape.hidden * work.element
    copies = 5 if trained <= work.loss_chunk else 4
    return min(work.loss_chunk, trained) * work.shape.vocab * copies * FP32
