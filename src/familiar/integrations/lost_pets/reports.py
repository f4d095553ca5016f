"""Reports of lost and found pets: their fields, and the pets of a gallery.

A pet is an identity with a report. An identity that has a name and no report counts as lost, so that a gallery made
from folders of lost pets needs no further entry.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from functools import reduce
from typing import Literal, get_args

from familiar.core.errors import Contradiction, NotInGallery
from familiar.core.names import unify_spelling
from familiar.core.terminal_text import printable
from familiar.gallery import Gallery, IdentitySummary

Status = Literal["lost", "found", "home"]
STATUSES: tuple[Status, ...] = get_args(Status)
TEXTS = ("species", "location", "reported_on", "contact", "note")
MAX_CHARACTERS = 2_000
"""Of one text of a report."""


@dataclass(frozen=True)
class Report:
    """What is known about a lost or found pet; "" is not known.

    Attributes:
        status: lost, found, or home again. Only lost and found pets are compared.
        species: in lower case, such as cat.
        location: where it was lost or found.
        reported_on: ISO date on which it was lost or found.
        contact: of its owner or finder. Not for the public.
        note: anything else, on one line.

    Raises:
        Contradiction: the status or the date is not valid, or a text is too long.
    """

    status: Status = "lost"
    species: str = ""
    location: str = ""
    reported_on: str = ""
    contact: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        read_status(self.status)
        for field in fields(self)[1:]:
            text = unify_spelling(" ".join(str(getattr(self, field.name)).split()))
            if len(text) > MAX_CHARACTERS:
                raise Contradiction(f"a field may have {MAX_CHARACTERS:,} characters; one has {len(text):,}")
            object.__setattr__(self, field.name, printable(text))
        object.__setattr__(self, "species", self.species.lower())
        if self.reported_on and not _is_date(self.reported_on):
            raise Contradiction(f"a date must be written as 2026-05-31, got {self.reported_on!r}")

    @property
    def record(self) -> dict[str, str]:
        """The attributes of its identity."""
        return asdict(self)

    @staticmethod
    def from_records(records: Sequence[Mapping[str, str]]) -> "Report":
        """Return the report of an identity by its attributes; that of one that has only a name, if there are none.

        Several are of identities that were merged. A lost and a found pet are home when they prove to be the same.
        Otherwise an open case stays open. The fields of the first win; those that it lacks come from the others. Of a
        found pet, where it was found becomes part of the note.
        """
        names = [field.name for field in fields(Report)]
        first, *others = [
            Report(**{name: record[name] for name in names if name in record})  # pyright: ignore[reportArgumentType]
            for record in records or [{}]
        ]
        return reduce(_merged, others, first)


@dataclass(frozen=True)
class Pet:
    """A lost or found pet of a gallery.

    Attributes:
        identity: its number.
        name: if it has one.
        report: as it was entered; "lost" for an identity with a name alone.
        faces: the number of its faces.
        best: faces that show it well, the best first.
        species: of the report, or else what most of its faces were detected as; "" if neither is known.
    """

    identity: int
    name: str | None
    report: Report
    faces: int
    best: tuple[int, ...]
    species: str

    @property
    def label(self) -> str:
        """Its name, or its number as #12."""
        return self.name or f"#{self.identity}"


def read_status(text: str) -> Status:
    """Return the status that a text names; raise Contradiction if it names none."""
    for status in STATUSES:
        if text == status:
            return status
    raise Contradiction(f"the status must be lost, found or home, got {text!r}")


def list_pets(gallery: Gallery, status: Status | None = None) -> list[Pet]:
    """List the pets of a gallery by name, those without a name last.

    Args:
        gallery: to read.
        status: only pets of this status; None: all.
    """
    pets = gallery.cached("pets", lambda: _read_pets(gallery))
    return [pet for pet in pets if status in (None, pet.report.status)]


def find_pet(gallery: Gallery, identity: int) -> Pet:
    """Return a pet; raise NotInGallery if there is no identity of this number that has a name or a report."""
    for pet in list_pets(gallery):
        if pet.identity == identity:
            return pet
    raise NotInGallery(f"{gallery.folder}: has no lost or found pet #{identity}; give it a name or a report")


def has_reports(gallery: Gallery) -> bool:
    """Tell whether the register of lost and found pets is used."""
    return any("status" in record for each in gallery.all_attributes().values() for record in each)


def _merged(first: Report, second: Report) -> Report:
    if {first.status, second.status} == {"lost", "found"}:
        return _reunited(first, second) if first.status == "lost" else _reunited(second, first)
    status = first.status if first.status != "home" else second.status
    texts = ((getattr(first, name) or getattr(second, name)) for name in TEXTS)
    return Report(status, *texts)


def _reunited(lost: Report, found_report: Report) -> Report:
    """Combine the reports of a lost pet and of the found pet that it is: it is home, and the note says where it was."""
    when = f" on {found_report.reported_on}" if found_report.reported_on else ""
    where = f", {found_report.location}" if found_report.location else ""
    sentence = f"Found{when}{where}." if when or where else ""
    return Report(
        "home",
        lost.species or found_report.species,
        lost.location,
        lost.reported_on,
        _join("; ", lost.contact, found_report.contact),
        _join(" ", lost.note, sentence, found_report.note),
    )


def _join(separator: str, *texts: str) -> str:
    """Join the texts that are not empty, each once, cut to the longest text that a report takes."""
    return separator.join(dict.fromkeys(filter(None, texts)))[:MAX_CHARACTERS]


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _read_pets(gallery: Gallery) -> list[Pet]:
    records, names, species = gallery.all_attributes(), gallery.names(), _species_of_faces(gallery)
    summaries = {summary.identity: summary for summary in gallery.identities()}
    pets: list[Pet] = []
    for identity in records.keys() | names.keys():
        report, name = Report.from_records(records.get(identity, [])), names.get(identity)
        summary = summaries.get(identity, IdentitySummary(identity, name, 0, 0, ()))
        shown_species = report.species or species.get(identity, "")
        pets.append(Pet(identity, name, report, summary.faces, summary.best, shown_species))
    return sorted(pets, key=lambda pet: (pet.name is None, (pet.name or "").casefold(), pet.identity))


def _species_of_faces(gallery: Gallery) -> dict[int, str]:
    """Return what most faces of each identity were detected as, if that is known."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for face in gallery.faces():
        if face.species and face.identity is not None:
            counts[face.identity][face.species.lower()] += 1
    return {identity: counter.most_common(1)[0][0] for identity, counter in counts.items()}
