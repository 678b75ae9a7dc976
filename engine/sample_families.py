"""Samples of one prompt: one of them computes it, and the others fork from it.

The samples of a row are requests of their own. The first to come leads: it alone waits for a
place and computes the prompt. Its followers enter the batch with the step that completes the
prompt, sample their first tokens from the same logits, and share all of its blocks from then
on, with a prefix cache or without one. Those that find no room get a leader of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.sequence import Sequence, SequenceStatus


class _Family:
    """The samples of one prompt that have not ended.

    Attributes:
        members: all of them, by request id.
        leader: the one that is to compute the prompt; None when none of them needs one.
        followers: those that wait for it, by request id.
    """

    __slots__ = ("followers", "leader", "members")

    def __init__(self) -> None:
        self.members: dict[str, Sequence] = {}
        self.leader: Sequence | None = None
        self.followers: dict[str, Sequence] = {}

    def promote(self) -> Sequence | None:
        """Make the first follower the leader; None if there is none."""
        self.leader = next(iter(self.followers.values()), None)
        if self.leader is not None:
            del self.followers[self.leader.request_id]
        return self.leader


class SampleFamilies:
    """Who leads and who follows, by `Request.sample_of`. Requests without one are no samples."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self.num_followers = 0

    def join(self, sequence: Sequence) -> bool:
        """Take a new sample; true if it follows another, and must not be queued."""
        name = sequence.request.sample_of
        if name is None:
            return False
        family = self._families.setdefault(name, _Family())
        family.members[sequence.request_id] = sequence
        leader = family.leader
        if leader is None:
            family.leader = sequence
            return False
        if (
            sequence.prompt_work is not None  # it has to compute the prompt itself
            or leader.prompt_token_ids != sequence.prompt_token_ids
            or leader.request.priority != sequence.request.priority
        ):
            return False
        family.followers[sequence.request_id] = sequence
        self.num_followers += 1
        return True

    def leads(self, sequence: Sequence) -> bool:
        """Whether others wait for the sequence to compute their prompt."""
        family = self._family_of(sequence)
        return family is not None and family.leader is sequence and bool(family.followers)

    def follows(self, sequence: Sequence) -> bool:
        """Whether the sequence waits for its leader."""
        family = self._family_of(sequence)
        return family is not None and sequence.request_id in family.followers

    def followers_of(self, leader: Sequence) -> tuple[Sequence, ...]:
        family = self._family_of(leader)
        return () if family is None else tuple(family.followers.values())

    def forked(self, sequence: Sequence) -> None:
        """A follower has entered the batch."""
        family = self._family_of(sequence)
        assert family is not None
        del family.followers[sequence.request_id]
        self.num_followers -= 1

    def completed(self, leader: Sequence) -> Sequence | None:
        """The leader's prompt is computed; returns who leads those that still follow, to be
        queued."""
        family = self._family_of(leader)
        return None if family is None or family.leader is not leader else self._promote(family)

    def leave(self, sequence: Sequence) -> Sequence | None:
        """A sample has ended; returns who leads in its place, to be queued."""
        family = self._family_of(sequence)
        if family is None:
            return None
        del family.members[sequence.request_id]
        if family.followers.pop(sequence.request_id, None) is not None:
            self.num_followers -= 1
        if not family.members:
            del self._families[sequence.request.sample_of or ""]
        return self._promote(family) if family.leader is sequence else None

    def donor(self, sequence: Sequence) -> Sequence | None:
        """A running sample whose blocks hold the prompt of `sequence`; None if there is none."""
        family = self._family_of(sequence)
        members = () if family is None else family.members.values()
        return next(
            (
                m for m in members
                if m.status is SequenceStatus.RUNNING
                and m.num_computed_tokens >= len(m.prompt_token_ids)
                and m.forked_from is None
                and m.prompt_token_ids == sequence.prompt_token_ids
            ),
            None,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Sequence]:
        """All followers, in no order."""
        for family in self._families.values():
            yield from family.followers.values()

    def _family_of(self, sequence: Sequence) -> _Family | None:
        name = sequence.request.sample_of
        return None if name is None else self._families.get(name)

    def _promote(self, family: _Family) -> Sequence | None:
        heir = family.promote()
        self.num_followers -= heir is not None
        return heir
