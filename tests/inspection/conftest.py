"""The synthetic base's tokenizer."""

from typing import Any

import pytest

from hashtune.store.synthetic import build_synthetic


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Byte-level BPE; <|im_start|> is 1, <|im_end|> is 2."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("base")
    build_synthetic(folder, seed=0)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)
