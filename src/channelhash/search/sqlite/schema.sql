-- A code never changes in place and its serial is never used again, so that whoever has read the codes up to some
-- serial is up to date with those of higher serials and without those in `removed`.
-- The checksum of a code holds for the projection beside it too, which only some stores keep.
CREATE TABLE items (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, metadata TEXT NOT NULL, checksum INTEGER);
CREATE TABLE codes (
    serial INTEGER PRIMARY KEY, item INTEGER NOT NULL, modality TEXT NOT NULL, code BLOB NOT NULL,
    checksum INTEGER, projection BLOB, UNIQUE (modality, item)
);
CREATE TABLE removed (serial INTEGER PRIMARY KEY);
CREATE TABLE labels (label TEXT NOT NULL, item INTEGER NOT NULL, PRIMARY KEY (label, item)) WITHOUT ROWID;
CREATE INDEX labels_of_item ON labels (item);
CREATE TABLE keys (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE state (
    version INTEGER NOT NULL, last_serial INTEGER NOT NULL,
    snapshot TEXT NOT NULL, snapshot_serial INTEGER NOT NULL, snapshot_size INTEGER NOT NULL, writes INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE about (description TEXT NOT NULL, stage BLOB);
CREATE TRIGGER code_removed AFTER DELETE ON codes BEGIN INSERT INTO removed VALUES (old.serial); END;
