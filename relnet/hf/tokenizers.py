"""Tokenizers that need no training: bytes, and the letters of the copying exam."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from relnet.tasks.copying import Copying
from relnet.tasks.letters import SPECIAL

END_OF_TEXT = "<|endoftext|>"


def _byte_characters() -> list[str]:
    """The character that stands for each byte inside `tokenizers`: itself where it prints, else one from 256 on."""
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printing else chr(next(others)) for byte in range(256)]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the bytes of UTF-8. Byte 255, which no UTF-8 holds, is <|endoftext|>: beginning, end and pad.

    >>> tokenizer = byte_tokenizer()
    >>> tokenizer("hé").input_ids, tokenizer.decode([104, 195, 169]), tokenizer.eos_token_id
    ([104, 195, 169], 'hé', 255)
    """
    tokens = [*_byte_characters()[:-1], END_OF_TEXT]
    tokenizer = Tokenizer(models.BPE(vocab={token: byte for byte, token in enumerate(tokens)}, merges=[]))
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer of the copying exam: "hello" becomes <BOS>hello<SEP>, the question of `tasks.Copying`.

    Other characters than a to z raise Exception (of `tokenizers`).

    >>> tokenizer = letter_tokenizer()
    >>> tokenizer("hello").input_ids
    [0, 10, 7, 14, 14, 17, 1]
    """
    letters = [chr(ord("a") + index) for index in range(Copying().vocab_size - Copying.FIRST_LETTER)]
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    bos, sep, eos = SPECIAL
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {sep}", special_tokens=[(token, vocabulary[token]) for token in (bos, sep)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        sep_token=sep,
        eos_token=eos,
        pad_token=eos,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
