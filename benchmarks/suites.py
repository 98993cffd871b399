"""The suites S1 to S5: work of known shape, with the true length of each answer, and the KV cache that it is run on.

    S1  templates and documents, each asked several questions: most prompt tokens can be shared; the cache holds a
        quarter of them
    S2  rows of a table with few values a column, through a template that lists the fields
    S3  nothing shared
    S4  answers of heavy-tailed length, and a cache in which few of the longest fit
    S5  every fifth request is a copy of another

The same name, scale, seed and tokenizer give the same suite, token for token, in a shuffled order of arrival.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from benchmarks.texts import SAMPLES, Texts
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Tokenizer
from tasks.core.request import SamplingParams
from tasks.engine.kv_pool import next_hash

BLOCK_SIZE = 32
MAX_NUM_SEQS = 32
MAX_NUM_BATCHED_TOKENS = 1024
TABLE_FIELDS = (
    "sku",
    "title",
    "material",
    "brand",
    "country",
    "maker",
    "category",
    "guide",
    "season",
    "state",
    "stars",
    "shipping",
)
"""As a join of products with brands and categories has them: what differs in each row comes first, and what is said of a
brand or a category stands in all of its rows."""


@dataclass(frozen=True, slots=True)
class Item:
    """One request of a suite. A planner may see all but `true_tokens`, the length of the answer that it will get.

    `row` are the values that the prompt was made of, where it comes from a table.
    """

    source: str
    request_id: str
    text: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    true_tokens: int
    row: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> int:
        """A number for it alone, the same in every process."""
        return int.from_bytes(blake2b(self.request_id.encode(), digest_size=8).digest(), "little")

    def sequence(self) -> PlannedSequence:
        """What goes to the engine, with the true length enforced."""
        params = SamplingParams(max_tokens=self.true_tokens, ignore_eos=True)
        return PlannedSequence(self.key, self.request_id, 0, 0, self.prompt_token_ids, params, self.source)


@dataclass(frozen=True, slots=True)
class Suite:
    """Requests in their order of arrival, and the KV blocks that they are measured with, counted as vLLM does.

    `history` is an earlier night of the same sources: other requests, with the lengths that their answers had.
    """

    name: str
    items: tuple[Item, ...]
    num_blocks: int
    history: tuple[Item, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        return sum(len(item.prompt_token_ids) for item in self.items)

    @property
    def shareable(self) -> float:
        """The share of prompt tokens that need not be computed when every full block is computed once."""
        return cacheable_tokens(item.prompt_token_ids for item in self.items) / self.prompt_tokens


def cacheable_tokens(prompts: Iterable[Sequence[int]], block_size: int = BLOCK_SIZE) -> int:
    """The most prompt tokens that a prefix cache without bounds can give: the optimum of the prompts' trie."""
    seen: set[bytes] = set()
    cached = 0
    for prompt in sorted(map(tuple, prompts)):  # a prefix before what goes on from it
        known = True
        for i, block_hash in enumerate(full_blocks(prompt, block_size)):
            known = known and block_hash in seen and (i + 1) * block_size < len(prompt)
            cached += block_size * known
            seen.add(block_hash)
    return cached


def full_blocks(prompt: Sequence[int], block_size: int = BLOCK_SIZE) -> list[bytes]:
    """The chained hashes of a prompt's full blocks."""
    hashes: list[bytes] = []
    for start in range(0, len(prompt) - block_size + 1, block_size):
        hashes.append(next_hash(hashes[-1] if hashes else b"", prompt[start : start + block_size]))
    return hashes


@dataclass(frozen=True, slots=True)
class _Draft:
    """A request before it is tokenised: messages or, without any, a bare prompt."""

    source: str
    text: str
    max_tokens: int
    true_tokens: int
    system: str | None = None
    row: tuple[tuple[str, str], ...] = ()


def make_suite(
    name: str, tokenizer: Tokenizer, *, scale: float = 1.0, seed: int = 0, folder: Path = SAMPLES, kv: float | None = None
) -> Suite:
    """One of S1 to S5; `scale` multiplies the number of requests, `kv` replaces the suite's own share of the cache.

    What the share is a share of is the working set, the distinct full blocks of all prompts and answers; in S4 it is what
    the running sequences would need if all were as long as allowed.
    """
    maker, share = _SUITES[name]
    texts = Texts(seed, folder)
    drafts = maker(texts, scale)
    texts.rng.shuffle(drafts)
    items = tokenised(name, drafts, tokenizer)
    history = tokenised(f"{name}-earlier", maker(Texts(seed + 1, folder), scale), tokenizer) if name == "S4" else ()
    wanted = _longest_together(items) if name == "S4" else _working_set(items)
    least = max(_blocks(len(item.prompt_token_ids) + item.max_tokens) for item in items) + 2
    blocks = max(least, int(wanted * (share if kv is None else kv)) + 1)
    return Suite(name, items, blocks, history)


def tokenised(prefix: str, drafts: Sequence[_Draft], tokenizer: Tokenizer) -> tuple[Item, ...]:
    """The requests, numbered in their order."""
    rendered = [draft.system is not None for draft in drafts]
    prompts = [_rendered(draft, tokenizer) for draft in drafts]
    encoded = tokenizer.encode(prompts, rendered=rendered)
    return tuple(
        Item(draft.source, f"{prefix}/{i}", draft.text, tuple(ids), draft.max_tokens, draft.true_tokens, draft.row)
        for i, (draft, ids) in enumerate(zip(drafts, encoded, strict=True))
    )


def _rendered(draft: _Draft, tokenizer: Tokenizer) -> str:
    if draft.system is None:
        return draft.text
    system: dict[str, object] = {"role": "system", "content": draft.system}
    return tokenizer.render([system, {"role": "user", "content": draft.text}])


def _blocks(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_SIZE)


def _working_set(items: Sequence[Item]) -> int:
    """Distinct full blocks of the prompts, and the blocks of what is only each request's own."""
    shared = set(chain.from_iterable(full_blocks(item.prompt_token_ids) for item in items))
    own = [len(item.prompt_token_ids) % BLOCK_SIZE + item.true_tokens for item in items]
    return len(shared) + sum(map(_blocks, own))


def _longest_together(items: Sequence[Item]) -> int:
    longest = sorted((_blocks(len(item.prompt_token_ids) + item.max_tokens) for item in items), reverse=True)
    return sum(longest[:MAX_NUM_SEQS])


def _templates_and_documents(texts: Texts, scale: float) -> list[_Draft]:
    """Six templates, each with a document of its own that is asked 20 questions; larger scales have more documents."""
    drafts = []
    for template in range(6):
        system = f"You are assistant {template} of the night desk. {texts.passage(100)}"
        for _ in range(max(1, round(scale))):
            document = texts.passage(round(700 + 700 * min(scale, 1)))
            for _ in range(max(2, round(20 * min(scale, 1)))):
                question = f"Document: {document}\nQuestion: {texts.words(5)}?"
                drafts.append(_Draft(f"template-{template}", question, 8, texts.rng.randint(2, 6), system))
    return drafts


def _table(texts: Texts, scale: float) -> list[_Draft]:
    """Rows of products; brand says country and maker, category says material and guide, as in tables that were joined."""
    rng, values = texts.rng, {name: [texts.words(3) for _ in range(many)] for name, many in _CARDINALITY.items()}
    about = {name: texts.passage(200) for kind in ("brand", "category") for name in values[kind]}
    drafts = []
    for i in range(round(120 * scale)):
        row = {name: rng.choice(values[name]) for name in ("brand", "category", "season", "state", "stars", "shipping")}
        row |= {"maker": about[row["brand"]], "guide": about[row["category"]]}
        row |= {"country": values["country"][hash_of(row["brand"]) % 4], "sku": f"{i:05d}-{rng.randrange(10**6):06d}"}
        row |= {"material": values["material"][hash_of(row["category"]) % 3], "title": texts.words(6)}
        drafts.append(table_draft({name: row[name] for name in TABLE_FIELDS}, rng.randint(2, 6)))
    return drafts


_CARDINALITY = {
    "brand": 8,
    "country": 4,
    "category": 5,
    "material": 3,
    "season": 2,
    "state": 3,
    "stars": 5,
    "shipping": 3,
}


def hash_of(text: str) -> int:
    """The same in each process."""
    return next_hash(b"", list(text.encode()))[0]


def table_draft(row: dict[str, str], true_tokens: int) -> _Draft:
    """A row through the template of S2; its fields are listed in the order of the dict."""
    listed = "\n".join(f"{name}: {value}" for name, value in row.items())
    system = "You sort products into the shop's departments. Answer with the department and one reason."
    return _Draft("products", listed, 8, true_tokens, system, tuple(row.items()))


def reordered(suite: Suite, orders: Callable[[Item], Sequence[str]], tokenizer: Tokenizer) -> Suite:
    """S2 with each row's fields in the order that is chosen for it; ids, order of arrival and cache stay."""
    drafts = [table_draft({name: dict(item.row)[name] for name in orders(item)}, item.true_tokens) for item in suite.items]
    moved = tokenised(suite.name, drafts, tokenizer)
    return replace(
        suite, items=tuple(replace(item, request_id=old.request_id) for item, old in zip(moved, suite.items, strict=True))
    )


def _nothing_shared(texts: Texts, scale: float) -> list[_Draft]:
    rng = texts.rng
    return [
        _Draft(f"plain-{i % 3}", f"{rng.randrange(10**9)} {texts.passage(rng.randint(100, 500))}", 24, rng.randint(6, 24))
        for i in range(round(60 * scale))
    ]


_TAILS = ((6.0, 0.5), (12.0, 0.9), (30.0, 1.1), (4.0, 0.3))
"""Per kind of question, the median of its answers' lengths in tokens, and the deviation of their logarithm."""


def _heavy_tails(texts: Texts, scale: float) -> list[_Draft]:
    """Three sources, each of which asks four kinds of question; how long the answer is depends on source and kind."""
    rng, drafts = texts.rng, []
    kinds = random.Random(7)  # an earlier night asks the same kinds of question
    for source in range(3):
        system = f"You are the clerk of department {source}. Answer politely and completely."
        asked = [f"Kind {source}-{kind}: {kinds.choice(_KINDS)}" for kind in range(4)]
        for i in range(round(40 * scale)):
            median, deviation = _TAILS[i % 4]
            length = round(median * (1 + source / 2) * rng.lognormvariate(0, deviation))
            text = f"{asked[i % 4]} {texts.passage(100)}"
            drafts.append(_Draft(f"clerk-{source}", text, 160, min(160, max(1, length)), system))
    return drafts


_KINDS = (
    "Say yes or no.",
    "Name the reason.",
    "Summarise in one sentence.",
    "Explain at length.",
    "Translate it.",
    "List all.",
)


def _with_copies(texts: Texts, scale: float) -> list[_Draft]:
    """A template for each of four sources, and one request in five that another has asked before."""
    drafts: list[_Draft] = []
    systems = [f"You are desk {source}. {texts.passage(250)}" for source in range(4)]
    for i in range(round(100 * scale)):
        if i % 5 == 4:
            drafts.append(texts.rng.choice(drafts))
        else:
            text = texts.passage(texts.rng.randint(60, 200))
            drafts.append(_Draft(f"desk-{i % 4}", text, 16, texts.rng.randint(3, 16), systems[i % 4]))
    return drafts


_SUITES: dict[str, tuple[Callable[[Texts, float], list[_Draft]], float]] = {
    "S1": (_templates_and_documents, 0.25),
    "S2": (_table, 0.25),
    "S3": (_nothing_shared, 0.5),
    "S4": (_heavy_tails, 0.25),
    "S5": (_with_copies, 0.25),
}
"""Each suite's maker and its share of KV cache."""
NAMES = tuple(_SUITES)
