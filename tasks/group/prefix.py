"""Requests to PrefixGroups: by source, then by meaning, then so that neighbours share the longest token prefix.

A partition: every request is in exactly one group, or is a duplicate of one that is, exact or near. Deterministic, and
independent of the order in which the requests come.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby

from tasks.core.config import GroupConfig
from tasks.core.plan import GroupMember, PrefixGroup
from tasks.group.near import Near, find_near_duplicates
from tasks.group.semantic import Encoder, cluster


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups in their order, and for each duplicate the request whose answer it shares; `similarity` is the cosine of
    those that are no exact ones."""

    groups: tuple[PrefixGroup, ...]
    duplicate_of: dict[str, str]
    similarity: dict[str, float] = field(default_factory=dict)


def group(members: Iterable[GroupMember], open_encoder: Callable[[], Encoder], settings: GroupConfig) -> Grouping:
    """Group all requests; the encoder is opened if there is a source that is worth it."""
    ordered = sorted(members, key=lambda member: (member.source, member.request_id))
    duplicate_of = find_duplicates(ordered)
    unique = [member for member in ordered if member.request_id not in duplicate_of]
    groups: list[PrefixGroup] = []
    near: dict[str, Near] = {}
    encoder = cache(open_encoder)
    for source, of_source in groupby(unique, key=lambda member: member.source):
        alike = list(of_source)
        if settings.near_duplicates is not None:
            near |= find_near_duplicates(alike, encoder, settings.near_duplicates)
            alike = [member for member in alike if member.request_id not in near]
        labels = [0] * len(alike)
        if settings.is_worth_embedding(len(alike)):
            labels = cluster(encoder().embed([member.text for member in alike]), settings.cluster_size)
        groups += _groups_of_source(source, alike, labels)
    return Grouping(tuple(groups), *_answered_by(duplicate_of, near))


def _answered_by(duplicate_of: dict[str, str], near: dict[str, Near]) -> tuple[dict[str, str], dict[str, float]]:
    """Each duplicate's original and, if that is only near, the cosine; an exact duplicate of a merged request goes along."""
    merged = near | {copy: near[original] for copy, original in duplicate_of.items() if original in near}
    originals = duplicate_of | {copy: to.original for copy, to in merged.items()}
    return originals, {copy: to.similarity for copy, to in merged.items()}


def find_duplicates(members: Sequence[GroupMember]) -> dict[str, str]:
    """Requests whose answer must equal an earlier one's: same tokens, same sampling, nothing left to chance."""
    first: dict[bytes, str] = {}
    duplicate_of = {}
    for member in members:
        if member.sampling.is_deterministic:
            original = first.setdefault(_content_key(member), member.request_id)
            if original != member.request_id:
                duplicate_of[member.request_id] = original
    return duplicate_of


def _content_key(member: GroupMember) -> bytes:
    digest = hashlib.blake2b(array("i", member.prompt_token_ids).tobytes(), digest_size=16)
    digest.update(f"{member.n} {member.sampling.to_json()}".encode())
    return digest.digest()


def _groups_of_source(source: str, members: list[GroupMember], labels: list[int]) -> list[PrefixGroup]:
    clusters: dict[int, list[GroupMember]] = {}
    for label, member in zip(labels, members, strict=True):
        clusters.setdefault(label, []).append(member)
    sorted_clusters = sorted((sorted(of_cluster, key=_trie_order) for of_cluster in clusters.values()), key=_first)
    return [PrefixGroup(source, f"{source}#{i:04d}", tuple(ordered)) for i, ordered in enumerate(sorted_clusters)]


def _trie_order(member: GroupMember) -> tuple[tuple[int, ...], str]:
    """Sorting by token ids walks the trie of the prompts depth first."""
    return member.prompt_token_ids, member.request_id


def _first(ordered: list[GroupMember]) -> tuple[tuple[int, ...], str]:
    return _trie_order(ordered[0])
