"""For each task every answer to a prompt that its rules allow, found by looking, as text.

A task keeps its word where there is exactly one, and it is the item's.
"""

import re


def copying(prompt):
    return set(re.fullmatch(r"<BOS>([a-z]+)<SEP>", prompt).groups())


def followers(string, query, num):
    """What follows each place where the query stands."""
    ends = [match.start() + len(query) for match in re.finditer(f"(?={query})", string)]
    return [string[end : end + num] for end in ends]


def prefix_lookup(prompt, num):
    query, string = re.fullmatch(r"<BOS>([a-z]+)<SEP>([a-z]+)<SEP>", prompt).groups()
    return followers(string, query, num)


def suffix_lookup(prompt, num):
    string, query = re.fullmatch(r"<BOS>([a-z]+)<SEP>([a-z]+)", prompt).groups()
    return followers(string, query, num)


def duplicated_ngram(prompt, ngram):
    (string,) = copying(prompt)
    starts = range(len(string) - ngram + 1)
    twice = [(i, j) for i in starts for j in starts[i + ngram :] if string[i : i + ngram] == string[j : j + ngram]]
    assert any(string[i + ngram : i + ngram + 1] != string[j + ngram : j + ngram + 1] for i, j in twice), string
    return {string}


def unrepeated_copying(prompt, ngram):
    (string,) = copying(prompt)
    ngrams = [string[i : i + ngram] for i in range(len(string) - ngram + 1)]
    assert len(set(ngrams)) == len(ngrams), f"{string} repeats a {ngram}-gram"
    return {string}


def recall(prompt, key, value):
    pairs, asked = re.fullmatch(r"<BOS>([a-z]+)<SEP>(.+)", prompt).groups()
    pairs = [pairs[i : i + key + value] for i in range(0, len(pairs), key + value)]
    *before, question = asked.split("<EOS>")
    assert set(before) <= set(pairs), "the earlier answers are right ones"
    assert len({earlier[:key] for earlier in before} | {question}) == len(before) + 1, "no question comes twice"
    return [pair[key:] for pair in pairs if pair.startswith(question)]


def selective_copying(prompt):
    (string,) = re.fullmatch(r"<BOS>([a-z.]+)<SEP>", prompt).groups()
    return {string.replace(".", "")}


def induction_heads(prompt):
    (string,) = re.fullmatch(r"<BOS>([a-z!]+)<SEP>!", prompt).groups()
    return re.findall(r"!([a-z])", string)


def flip_flop(prompt):
    (string,) = re.fullmatch(r"<BOS>((?:[wir][01])+)r", prompt).groups()
    memory = None
    for instruction, bit in zip(string[::2], string[1::2], strict=True):
        memory = bit if instruction == "w" else memory
        assert memory is not None, "the first instruction writes"
        assert instruction != "r" or bit == memory, "what is read is what was written"
    return {memory}


def third_copy(prompt):
    first, second, word = prompt.split("\n\n")
    assert first == second
    assert first.split(" ")[0] == word
    return {first.removeprefix(word)}


def phone_book(prompt):
    book, examples, asked = prompt.split("\n\n")
    entries = book.split("\n")
    assert set(examples.split("\n")) <= set(entries)
    return [entry.removeprefix(asked) for entry in entries if entry.startswith(asked)]
