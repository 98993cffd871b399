"""Requests to PrefixGroups: by source, then by meaning, then so that neighbours share the longest token prefix.

A partition: every request is in exactly one group, or is an exact duplicate of one that is. Deterministic, and
independent of the order in which the requests come.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from tasks.core.config import GroupConfig
from tasks.core.plan import GroupMember, PrefixGroup
from tasks.group.semantic import Encoder, cluster


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups in their order, and for each exact duplicate the request whose answer it shares."""

    groups: tuple[PrefixGroup, ...]
    duplicate_of: dict[str, str]


def group(members: Iterable[GroupMember], open_encoder: Callable[[], Encoder], settings: GroupConfig) -> Grouping:
    """Group all requests; the encoder is opened if there is a source that is worth it."""
    ordered = sorted(members, key=lambda member: (member.source, member.request_id))
    duplicate_of = find_duplicates(ordered)
    unique = [member for member in ordered if member.request_id not in duplicate_of]
    groups: list[PrefixGroup] = []
    encoder = cache(open_encoder)
    for source, of_source in groupby(unique, key=lambda member: member.source):
        alike = list(of_source)
        labels = [0] * len(alike)
        if settings.is_worth_embedding(len(alike)):
            labels = cluster(encoder().embed([member.text for member in alike]), settings.cluster_size)
        groups += _groups_of_source(source, alike, labels)
    return Grouping(tuple(groups), duplicate_of)


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
