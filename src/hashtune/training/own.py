"""What training takes from the base is what the base itself computes: both proofs, in order."""

from collections.abc import Sequence

from hashtune.records import Row
from hashtune.training.documents import DOCUMENTS, FUSED
from hashtune.training.model import Trainee
from hashtune.training.own_masks import check_masks, read_masks
from hashtune.training.own_values import check_own, compare_own


def check_base(trainee: Trainee, rows: Sequence[Row], *, packed: bool) -> None:
    """Check attention and values over the planned rows; `packed`: sequences hold several documents.

    Raises:
        InputError: as `check_masks` and `check_own`.
    """
    attention = trainee.peft.get_base_model().config._attn_implementation
    seen = read_masks(trainee, rows)
    check_masks(seen, documents=attention in {DOCUMENTS, FUSED}, packed=packed)
    check_own(compare_own(trainee, rows[0]), trainee.precision)
