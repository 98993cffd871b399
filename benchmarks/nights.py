"""Nights of real requests with answers of very different lengths, made from a folder of public data.

Seven sources of a business: support, intents (classification), tutor (arithmetic), facts, knowledge-base (11 languages),
shop, and a workbench that mixes instructions in four languages, chats and code. No request is in two nights. The folder has
banking77, gsm8k, truthfulqa, xquad, product_qa, m_ifeval, self_instruct, humaneval, vicuna_bench and mt_bench as their own
repositories have them. What it writes is run by `nightbatch run OUT/night0 --max-tokens 256`, one night after the other.
"""

import argparse
import csv
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]

TAKEN = {"support": 60, "intents": 40, "tutor": 40, "facts": 40, "shop": 45}
MIXED = {"ifeval-en": 16, "ifeval-es": 8, "ifeval-fr": 8, "ifeval-ja": 8, "self": 30, "code": 12, "chats": 24}
_EACH_LANGUAGE = 5
_MAX_PASSAGE_BYTES, _MAX_EVIDENCE = 1500, 1200
_LABELS = "card, transfer, top-up, exchange, cash, identity, fees, refund"


def _chat(row_id: str, user: str, system: str = "") -> Row:
    turns = [{"role": "system", "content": system}] if system else []
    return {"id": row_id, "messages": [*turns, {"role": "user", "content": user}]}


def _lines(path: Path) -> Iterator[tuple[int, Row]]:
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    yield from enumerate(map(json.loads, lines))


def _table(path: Path, delimiter: str = ",") -> Iterator[tuple[int, dict[str, str]]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from enumerate(csv.DictReader(file, delimiter=delimiter))


def _bank(corpus: Path) -> tuple[list[Row], list[Row]]:
    classify = f"Classify the message into one of: {_LABELS}. Answer with the label and nothing else."
    support = "You are the support assistant of an online bank. Answer the customer briefly and politely."
    rows = [(f"bank-{i}", row["text"]) for i, row in _table(corpus / "banking77/test.csv")]
    return [_chat(*row, support) for row in rows[1::2]], [_chat(*row, classify) for row in rows[::2]]


def passages(corpus: Path) -> Iterator[tuple[str, int, str, Row]]:
    """(language, number of the passage, passage, question) of XQuAD."""
    for path in sorted((corpus / "xquad").glob("xquad.*.json")):
        number = 0
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                number += 1
                for question in paragraph["qas"]:
                    yield path.name.split(".")[1], number, paragraph["context"], question


def _knowledge(corpus: Path) -> dict[str, list[Row]]:
    system = "Answer with the shortest span copied from the passage, in the language of the question."
    found: dict[str, list[Row]] = {}
    for language, _, passage, question in passages(corpus):
        if len(passage.encode()) <= _MAX_PASSAGE_BYTES:
            user = f"Passage:\n{passage}\n\nQuestion: {question['question']}\nAnswer:"
            found.setdefault(language, []).append(_chat(f"xquad-{language}-{question['id']}", user, system))
    return found


def _mixed(corpus: Path) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for language in ("en", "es", "fr", "ja"):
        rows = _lines(corpus / f"m_ifeval/{language}_input_data.jsonl")
        found[f"ifeval-{language}"] = [_chat(f"if-{language}-{i}", row["prompt"]) for i, row in rows]
    assistant = "You are a helpful assistant."
    for i, row in _lines(corpus / "self_instruct/seed_tasks.jsonl"):
        given = row["instances"][0]["input"]
        asked = f"{row['instruction']}\n\n{given}" if given else row["instruction"]
        found.setdefault("self", []).append(_chat(f"si-{i}", asked, assistant))
    code = "Complete the Python function. Return only code."
    found["code"] = [_chat(f"he-{i}", row["prompt"], code) for i, row in _lines(corpus / "humaneval/HumanEval.jsonl.gz")]
    for name in ("vicuna_bench", "mt_bench"):
        rows = _lines(corpus / name / "question.jsonl")
        found.setdefault("chats", []).extend(_chat(f"{name}-{i}", row["turns"][0], assistant) for i, row in rows)
    return found


def _simple(corpus: Path) -> dict[str, list[Row]]:
    tutor = "You are a careful tutor. Solve the problem step by step and end with a line `#### <number>`."
    facts = "Answer in one or two truthful sentences. Say you do not know if you are not sure."
    shop = (
        "You answer shoppers' questions about a product, using only the evidence. "
        "If the evidence does not answer it, say so."
    )
    products = _table(corpus / "product_qa/hetPQA_answer_generation_test.csv", "\t")
    support, intents = _bank(corpus)
    return {
        "support": support,
        "intents": intents,
        "tutor": [_chat(f"gsm-{i}", row["question"], tutor) for i, row in _lines(corpus / "gsm8k/test.jsonl")],
        "facts": [_chat(f"tqa-{i}", row["Question"], facts) for i, row in _table(corpus / "truthfulqa/TruthfulQA.csv")],
        "shop": [_chat(f"pqa-{i}", _evidence(row), shop) for i, row in products],
    }


def _evidence(row: dict[str, str]) -> str:
    return f"Evidence ({row['source']}): {row['candidate'][:_MAX_EVIDENCE]}\nQuestion: {row['question']}"


def write_nights(corpus: Path, out: Path, number: int) -> list[Path]:
    """An inbox for each night; the same every time."""
    rng, nights = random.Random(5), [out / f"night{night}" for night in range(number)]
    parts = [(name, TAKEN[name], rows) for name, rows in _simple(corpus).items()]
    parts += [("knowledge-base", _EACH_LANGUAGE, rows) for rows in _knowledge(corpus).values()]
    parts += [("workbench", MIXED[kind], rows) for kind, rows in _mixed(corpus).items()]
    for _, _, rows in parts:
        rng.shuffle(rows)
    for night, folder in enumerate(nights):
        sources: dict[str, list[Row]] = {}
        for source, taken, rows in parts:
            sources.setdefault(source, []).extend(rows[night * taken : (night + 1) * taken])
        for source, rows in sources.items():
            rng.shuffle(rows)
            (folder / source).mkdir(parents=True, exist_ok=True)
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / source / "requests.jsonl").write_text(lines, encoding="utf-8")
    return nights


def main() -> None:
    """Write the nights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nights", type=int, default=3)
    given = parser.parse_args()
    write_nights(given.corpus, given.out, given.nights)


if __name__ == "__main__":
    main()
