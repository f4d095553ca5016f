"""Groups of faces that are one individual: what the embeddings say, within what the user has said.

What is settled stays: a face that is in a group keeps it, and two groups that are there are never joined but by the
user. New faces join them, or one another. `rebuild` lets go of what neither a name nor the user holds.
"""

import sqlite3
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int64

from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments, load_assignments
from familiar.gallery.clustering.calibration import clustering_calibration
from familiar.gallery.clustering.constraints import build_constraints
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing.undo_log import decision
from familiar.neighbors.brute_force import search
from familiar.neighbors.domains import DOMAIN_THRESHOLD, IN_DOMAIN, cluster_by_domain, extend_domains, whiten_by_domain

MIN_QUALITY = 0.25
"""Of a face that is grouped unasked: what is blurred, tiny or cut off is alike for that reason alone."""
_ATTEMPTS = 3  # without holding others up; if they write each time, once more while they wait
_ROUNDS = 5  # until nothing changes any more
_NEAREST = 60  # faces whose groups a face that was let go of might join


@dataclass(frozen=True)
class ClusterResult:
    """`identities` that hold faces now, the `faces` they hold, those `alone`, and how many `changed` in this call."""

    identities: int
    faces: int
    unassigned: int
    changed: int
    threshold: float


class _Overtaken(Exception):
    """Another process wrote while groups were computed."""


def cluster(gallery: Gallery, *, threshold: float | None = None, rebuild: bool = False) -> ClusterResult:
    """Puts every face that is in no group into one, as one decision.

    Two faces are one individual from `threshold` on, a similarity in [-1, 1] (None: the gallery's own calibration, else
    the model's for few false accepts). Never together: two faces of one photo, faces that the user told apart or
    rejected, and two groups that are there. Faces of a quality under .25 are in a group only where the user put them,
    or a name holds them.
    The same gallery gives the same groups.

    `rebuild`: groups without a name are made anew, but for the faces that the user put there; one keeps its number
    where most of it comes together again.
    """
    for attempt in range(_ATTEMPTS + 1):
        revision = gallery.revision
        plan = _plan(gallery, threshold, rebuild) if attempt < _ATTEMPTS else None
        try:
            with decision(gallery, "group") as connection:
                if plan is None:
                    plan = _plan(gallery, threshold, rebuild)
                elif gallery.revision != revision:
                    raise _Overtaken
                connection.execute("UPDATE gallery SET judged_face = (SELECT coalesce(max(id), 0) FROM faces)")
                return _write(connection, plan)
        except _Overtaken:
            continue
    raise AssertionError("the last attempt cannot be overtaken")


def recluster(
    gallery: Gallery, connection: sqlite3.Connection, free: Int64[np.ndarray, " k"], touched: list[int]
) -> ClusterResult:
    """Within a decision: finds places for the faces `free`, and lets lone ones join the identities `touched`."""
    who = load_assignments(gallery)
    threshold = clustering_calibration(gallery).threshold
    loose = np.zeros(len(who.identity), np.bool_)
    loose[who.faces.rows_of(free)] = True
    seen = who.domain_adapted_embeddings()
    alone = np.flatnonzero((who.identity == UNASSIGNED) & ~loose)
    for number in touched:
        own = who.rows_of_identity(number)
        for kind in np.unique(who.domain[own]):
            mean = seen[own[who.domain[own] == kind]].mean(axis=0)
            near = alone[who.domain[alone] == kind]
            from_here = np.linalg.norm(mean) * domain_threshold(threshold, int(kind))
            loose[near[seen[near] @ mean >= from_here]] = True
    rows = np.flatnonzero(loose)
    if not len(rows):
        return _write(connection, _Plan(who, who.identity.copy(), who.domain, threshold))
    near, _ = search(who.faces.embeddings, who.faces.unit_rows(rows), min(_NEAREST, len(seen)))
    beside = np.unique(np.concatenate([who.identity[near.reshape(-1)], np.array(touched, np.int64)]))
    part = loose | np.isin(who.identity, beside[beside != UNASSIGNED])
    kept = np.where(loose, UNASSIGNED, who.identity)
    return _write(connection, _planned(gallery, who, threshold, kept, part, int(who.faces.ids[-1])))


def domain_threshold(threshold: float, kind: int) -> float:
    """Return the similarity of adapted embeddings from which two faces of a domain are clustered."""
    return threshold if kind == IN_DOMAIN else DOMAIN_THRESHOLD


@dataclass(frozen=True, eq=False)
class _Plan:
    """`identity[i]`: who face i shall be; below -1 a new identity, the same for the faces of one group."""

    who: FaceAssignments
    identity: Int64[np.ndarray, " n"]
    kind: Int64[np.ndarray, " n"]
    threshold: float


def _plan(gallery: Gallery, threshold: float | None, rebuild: bool) -> _Plan:
    who = load_assignments(gallery)
    if threshold is None:
        threshold = clustering_calibration(gallery).threshold
    with gallery.reading() as connection:
        (judged,) = connection.execute("SELECT judged_face FROM gallery").fetchone()
    kept = who.identity.copy()
    if rebuild:
        named = np.isin(who.identity, np.array(list(who.names), np.int64))
        kept[~named & ~who.by_user] = UNASSIGNED
        who, judged = replace(who, domain=np.where(kept == UNASSIGNED, IN_DOMAIN, who.domain)), 0
    everyone = np.ones(len(kept), np.bool_)
    plan = _planned(gallery, who, threshold, kept, everyone, judged)
    for _ in range(_ROUNDS):
        # Large groups look only at the nearest of those beside them, so one more face may have a place by now.
        settled = replace(who, identity=plan.identity, domain=plan.kind)
        again = _planned(gallery, settled, threshold, plan.identity, everyone, int(who.faces.ids.max(initial=0)))
        if (again.identity == plan.identity).all():
            break
        plan = replace(again, who=plan.who)
    return plan


def _planned(
    gallery: Gallery,
    who: FaceAssignments,
    threshold: float,
    kept: Int64[np.ndarray, " n"],
    part: Bool[np.ndarray, " n"],
    judged: int,
) -> _Plan:
    """The faces of `part` grouped around those whose identity is `kept`; all others as they are.

    Faces up to the number `judged` are of the kind they are of, or of none: to ask again would move a few each time.
    """
    rows = np.flatnonzero(part & ((kept != UNASSIGNED) | (who.faces.quality >= MIN_QUALITY)))
    vectors = who.faces.unit_rows()
    new = (kept == UNASSIGNED) & (who.faces.ids > judged)
    kind = np.where(new, extend_domains(vectors, who.domain), who.domain)
    constraints, numbers = build_constraints(gallery, who, kept, rows)
    found, kind[rows] = cluster_by_domain(
        vectors[rows], threshold, kind[rows], whiten_by_domain(vectors, kind)[rows], constraints
    )
    identity = np.where(part, kept, who.identity)
    numbered = _numbered(found, constraints.seeds, numbers, who.identity[rows], kept[rows])
    identity[rows] = _parted(numbered, kept[rows], constraints.cannot_link)
    return _Plan(who, identity, kind, threshold)


def _numbered(
    found: Int64[np.ndarray, " m"],
    seeds: Int64[np.ndarray, " m"],
    numbers: Int64[np.ndarray, " s"],
    before: Int64[np.ndarray, " m"],
    kept: Int64[np.ndarray, " m"],
) -> Int64[np.ndarray, " m"]:
    """The identity of each face: its group's seed's; else the one that most of the group had, each given to the group
    that has most of it; else a new one, below -1. A face alone is nobody."""
    groups = found.max(initial=-1) + 1
    of_group = np.full(groups, UNASSIGNED, np.int64)
    settled = (seeds != UNASSIGNED) & (seeds < len(numbers))
    of_group[found[settled]] = numbers[seeds[settled]]
    sizes = np.bincount(found, minlength=groups)
    several = (of_group == UNASSIGNED) & (sizes > 1)
    free = several[found] & (before != UNASSIGNED) & (kept == UNASSIGNED) & ~np.isin(before, numbers)
    cells, counts = np.unique(before[free] * groups + found[free], return_counts=True)
    taken: set[int] = set()
    for place in np.argsort(-counts, kind="stable"):
        number, of = divmod(int(cells[place]), int(groups))
        if number not in taken and of_group[of] == UNASSIGNED:
            of_group[of] = number
            taken.add(number)
    new = np.flatnonzero(several & (of_group == UNASSIGNED))
    of_group[new] = min(UNASSIGNED, int(numbers.min(initial=UNASSIGNED))) - 1 - np.arange(len(new))
    return of_group[found]


def _parted(
    identity: Int64[np.ndarray, " m"], kept: Int64[np.ndarray, " m"], apart: Int64[np.ndarray, "p 2"]
) -> Int64[np.ndarray, " m"]:
    """Of two faces that can never be one individual, but came into one identity that has faces of both their kinds, the
    one that nobody put there is nobody."""
    one, other = apart.T
    wrong = (identity[one] == identity[other]) & (identity[one] != UNASSIGNED)
    parted = identity.copy()
    parted[np.where(kept[other] == UNASSIGNED, other, one)[wrong]] = UNASSIGNED
    return parted


def _write(connection: sqlite3.Connection, plan: _Plan) -> ClusterResult:
    """Only what changes is written; identities without a name that hold nobody any more go."""
    who, identity = plan.who, plan.identity.copy()
    new = int(UNASSIGNED - identity.min(initial=UNASSIGNED))
    (last,) = connection.execute(
        "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'identities'"
    ).fetchone()
    connection.executemany("INSERT INTO identities (id) VALUES (?)", ((last + 1 + place,) for place in range(new)))
    identity = np.where(identity < UNASSIGNED, last + UNASSIGNED - identity, identity)
    changed = np.flatnonzero(identity != who.identity)
    ids = who.faces.ids
    gone = changed[identity[changed] == UNASSIGNED]
    connection.executemany("DELETE FROM assignments WHERE face_id = ?", ((int(ids[row]),) for row in gone))
    connection.executemany(
        "INSERT INTO assignments (face_id, identity_id, by_user) VALUES (?, ?, 0) "
        "ON CONFLICT (face_id) DO UPDATE SET identity_id = excluded.identity_id, by_user = 0",
        ((int(ids[row]), int(identity[row])) for row in changed if identity[row] != UNASSIGNED),
    )
    _write_kinds(connection, plan)
    delete_empty_identities(connection)
    held = identity[identity != UNASSIGNED]
    return ClusterResult(len(np.unique(held)), len(held), len(identity) - len(held), len(changed), plan.threshold)


def _write_kinds(connection: sqlite3.Connection, plan: _Plan) -> None:
    # As they are written now: `plan.who` may have let go of them.
    written = dict(connection.execute("SELECT face_id, kind FROM kinds").fetchall())
    wanted = {int(plan.who.faces.ids[row]): int(plan.kind[row]) for row in np.flatnonzero(plan.kind != IN_DOMAIN)}
    connection.executemany("DELETE FROM kinds WHERE face_id = ?", ((face,) for face in written.keys() - wanted.keys()))
    connection.executemany(
        "INSERT INTO kinds (face_id, kind) VALUES (?, ?) ON CONFLICT (face_id) DO UPDATE SET kind = excluded.kind",
        ((face, kind) for face, kind in wanted.items() if written.get(face) != kind),
    )


def delete_empty_identities(connection: sqlite3.Connection) -> None:
    """Identities without a name that hold nobody, and of whom nothing is remembered."""
    connection.execute(
        "DELETE FROM identities WHERE name IS NULL AND NOT EXISTS "
        "(SELECT 1 FROM assignments WHERE identity_id = identities.id) AND NOT EXISTS "
        "(SELECT 1 FROM rejections WHERE identity_id = identities.id)"
    )
