"""All SQL statements on an open gallery, grouped by table."""

from familiar.gallery.store.assignments import Assignments
from familiar.gallery.store.connection import Connection
from familiar.gallery.store.constraints import Constraints
from familiar.gallery.store.erasure import Erasure
from familiar.gallery.store.events import Events
from familiar.gallery.store.faces import Faces
from familiar.gallery.store.identities import Identities
from familiar.gallery.store.learned_faces import LearnedFaces
from familiar.gallery.store.migration import Migration
from familiar.gallery.store.notes import Notes
from familiar.gallery.store.photos import Photos
from familiar.gallery.store.settings import Settings
from familiar.gallery.store.undo_log import UndoLog


class Repository:
    """The rows of a gallery, within the transaction of `Store.read` or `Store.write`.

    Attributes:
        connection: to the database; no other module needs it.
        settings, photos, faces, identities, assignments, constraints, learned_faces, undo_log,
            migration: the statements on the tables of these names. `constraints` has the rejections, too.
        events: what happened, for programs that follow it.
        notes: what other programs keep with the gallery.
        erasure: deletes faces for good.
    """

    def __init__(self, connection: Connection) -> None:
        """Use a connection to the gallery's database."""
        self.connection = connection
        self.settings = Settings(connection)
        self.photos = Photos(connection)
        self.faces = Faces(connection)
        self.identities = Identities(connection)
        self.assignments = Assignments(connection)
        self.constraints = Constraints(connection)
        self.learned_faces = LearnedFaces(connection)
        self.undo_log = UndoLog(connection)
        self.migration = Migration(connection)
        self.events = Events(connection)
        self.notes = Notes(connection)
        self.erasure = Erasure(connection)
