"""A tiny random chat model for tests: a Llama of 0.1 M parameters with a real byte-level BPE.

Everything derives from the seed and the corpus below, so the same seed gives the same bytes on
every machine: weights come from raw PCG64 bits (no global generator, no libm), the tokenizer is
trained here. It keeps the default base's trap: the pad token is the end-of-turn token.
Measured on 2 slow cores: 0.3 s to build, most of it imports.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashtune import writers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HIDDEN, LAYERS, HEADS, KV_HEADS, INTERMEDIATE, POSITIONS = 64, 2, 4, 2, 128, 512
HEAD_DIM = HIDDEN // HEADS
VOCABULARY = 512
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)  # ids 0, 1, 2
WEIGHT_SPREAD = 0.06  # uniform in [-0.06, 0.06]: standard deviation 0.035

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant' + '\\n' }}
{%- endif -%}
"""

CORPUS = (
    "system: You answer every question with one short sentence, or say that you do not know.",
    "user: What is the capital of France? assistant: The capital of France is Paris.",
    "user: How many days does a week have? assistant: A week has seven days.",
    "user: Write the numbers from one to five. assistant: one, two, three, four, five",
    "user: Please cancel my order, it has not arrived and I want my money back.",
    "user: The app stops with an error when I open the settings on my phone.",
    "user: I was charged twice this month, can you return one of the payments?",
    "user: How do I change the address and the password of my account?",
    "user: The parcel is late again and the customer service does not answer my messages.",
    "user: Thank you, the new version works well and the printer prints in colour again.",
    '{"category": "billing", "priority": "high", "product": "account", "refund": true}',
    '{"category": "delivery", "priority": "low", "product": "printer", "refund": false}',
    '{"category": "technical", "priority": "medium", "product": "app", "refund": false}',
    '{"category": "account", "priority": "low", "product": "phone", "refund": null}',
    '{"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]}',
    "Read the message of the customer and answer with one JSON object: category, priority.",
    "A model learns from examples; the answers are trained, the questions are only read.",
    "When the light in the house went out, she took the lamp and walked to the door.",
    "The train leaves at seven in the morning and arrives in the city before the shops are open.",
    "He wrote the letter twice, because the first one had been lost somewhere between two offices.",
    "Water boils at one hundred degrees, and ice melts when the temperature is above zero.",
    "I cannot help with that request, but I can tell you where to find safe and legal advice.",
)


def build_synthetic(out_dir: Path, *, seed: int) -> None:
    """Write config, fp32 weights, tokenizer, template and generation config into `out_dir`.

    The directory loads with AutoModelForCausalLM and AutoTokenizer. Vocabulary 512 (tied head),
    hidden size 64, 2 layers, 4 heads (2 for keys and values), 512 positions.
    """
    from safetensors.numpy import save

    writers.write_bytes(out_dir / "tokenizer.json", _tokenizer_json())
    writers.write_bytes(
        out_dir / "model.safetensors", save(_weights(seed), metadata={"format": "pt"})
    )
    writers.write_text(out_dir / "chat_template.jinja", CHAT_TEMPLATE)
    writers.write_json(out_dir / "config.json", _config())
    writers.write_json(
        out_dir / "generation_config.json",
        {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 2},
    )
    writers.write_json(
        out_dir / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": TURN_START,
            "eos_token": TURN_END,
            "pad_token": TURN_END,
            "unk_token": END_OF_TEXT,
            "model_max_length": POSITIONS,
            "clean_up_tokenization_spaces": False,
        },
    )


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "dtype": "float32",
        "eos_token_id": 2,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": POSITIONS,
        "mlp_bias": False,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "pad_token_id": 2,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": VOCABULARY,
    }


def _shapes() -> dict[str, tuple[int, ...]]:
    """Tensor names and shapes as LlamaForCausalLM stores them; the head is tied, so absent."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (HIDDEN,),
            f"{prefix}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
            f"{prefix}.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        }
    return {**shapes, "model.norm.weight": (HIDDEN,)}


def _weights(seed: int) -> "dict[str, NDArray[np.float32]]":
    """Norms are ones, all else uniform from 24 raw bits a value (PCG64's raw stream is stable)."""
    import numpy as np

    bits = np.random.PCG64(seed)
    weights: dict[str, NDArray[np.float32]] = {}
    for name, shape in _shapes().items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, dtype=np.float32)
            continue
        raw = np.asarray(bits.random_raw(shape[0] * shape[1]), dtype=np.uint64) >> np.uint64(40)
        unit = raw.astype(np.float32) / np.float32(2**23) - np.float32(1)  # exact, in [-1, 1)
        weights[name] = (unit * np.float32(WEIGHT_SPREAD)).reshape(shape)
    return weights


def _tokenizer_json() -> bytes:
    """Train the byte-level BPE; digits stand alone, as in the default base's tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer=trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise AssertionError(f"the corpus gives {tokenizer.get_vocab_size()} tokens")
    return (str(tokenizer.to_str(pretty=True)) + "\n").encode("utf-8")
