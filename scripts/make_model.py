"""Make a tiny random-weight Llama with tokenizer and chat template. Runs in the serving environment.

The tokenizer is trained on text made from the same seed, so the bytes do not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from serve_repro import program

SPECIAL = ["<|pad|>", "<|start|>", "<|end|>"]
PAD, START, END = range(3)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{{ part.get('text', '') }}{% endfor %}{% endif %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
HEAD_SIZE = 32
LOGIT_SCALE = 50


def main(arguments: argparse.Namespace) -> None:
    """Numbers of a recipe -> config.json, tokenizer, chat template, shards and their index."""
    numbers = json.loads(arguments.numbers)
    folder: Path = arguments.output.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = make_tokenizer(numbers["vocabulary"], numbers["max_positions"], numbers["seed"])
    tokenizer.save_pretrained(folder)
    save_weights(numbers, unprintable(tokenizer), folder)
    program.LOGGER.info("made %s", folder)


def words(draw: random.Random, count: int) -> list[str]:
    """Pronounceable words, so that the tokenizer has something to merge."""
    syllables = [c + v for c in "bcdfghklmnprstvz" for v in ("a", "e", "i", "o", "u", "ou", "an")]
    return ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(count)]


def text(seed: int, lines: int = 4000) -> Iterator[str]:
    """Lines of made prose and code."""
    draw = random.Random(seed)
    known = words(draw, 3000)
    for _ in range(lines):
        chosen = draw.choices(known, k=draw.randint(4, 16))
        yield " ".join(chosen) + draw.choice([".\n", ":\n    ", "(", ") = ", ";\n", " 42, "])


def make_tokenizer(vocabulary: int, max_positions: int, seed: int) -> Any:
    """A byte-level BPE tokenizer with exactly `vocabulary` tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text(seed), trainer)
    if tokenizer.get_vocab_size() != vocabulary:
        raise RuntimeError(f"{tokenizer.get_vocab_size()} tokens trained, {vocabulary} asked for")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL[START],
        eos_token=SPECIAL[END],
        pad_token=SPECIAL[PAD],
        model_max_length=max_positions,
        chat_template=CHAT_TEMPLATE,
    )


def unprintable(tokenizer: Any) -> list[int]:
    """Tokens that alone bring no text: specials, and bytes that are no whole character."""
    texts = {token: tokenizer.decode([token]) for token in range(len(tokenizer))}
    special = set(tokenizer.all_special_ids)
    return [token for token, text in texts.items() if token in special or not text.isascii()]


def save_weights(numbers: dict[str, int], never: list[int], folder: Path) -> None:
    """Random bfloat16 weights in at least `shards` safetensors files, with their index.

    The tokens `never` are never sampled: an answer of one such token would have no text, and the
    client would count it as an error. Their logits are 0, where the scaled rest reaches 30 and more.
    """
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(numbers["seed"])
    width = numbers["hidden_size"]
    config = LlamaConfig(
        vocab_size=numbers["vocabulary"],
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=numbers["layers"],
        num_attention_heads=width // HEAD_SIZE,
        num_key_value_heads=width // HEAD_SIZE // 2,
        head_dim=HEAD_SIZE,
        max_position_embeddings=numbers["max_positions"],
        bos_token_id=START,
        eos_token_id=END,
        pad_token_id=PAD,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        model.lm_head.weight *= LOGIT_SCALE
        model.lm_head.weight[never] = 0
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    model.save_pretrained(folder, max_shard_size=size // numbers["shards"] + 1)


if __name__ == "__main__":
    parser = program.parser(__doc__)
    parser.add_argument("--numbers", required=True, help="model.made of a recipe, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="config.json of the new model")
    program.run(main, parser.parse_args())
