-- Images by reference, and the layers they are made of.
--
-- An image may have several names, or none. One that was removed while sandboxes made from it are left keeps its row,
-- without files and without names, for what it says about the processes run in them.

CREATE TABLE image_names (
    tenant  TEXT NOT NULL REFERENCES tenants (id),
    name    TEXT NOT NULL,
    image   TEXT NOT NULL REFERENCES images (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX image_names_by_image ON image_names (image);
INSERT INTO image_names (tenant, name, image) SELECT tenant, name, id FROM images WHERE named = 1;

DROP INDEX images_by_name;
ALTER TABLE images DROP COLUMN named;
ALTER TABLE images DROP COLUMN name;
ALTER TABLE images ADD COLUMN origin TEXT NOT NULL DEFAULT '{}';
ALTER TABLE images ADD COLUMN layer TEXT;
ALTER TABLE images ADD COLUMN removed_ms INTEGER;
CREATE INDEX images_by_age ON images (tenant, created_ms, id);
CREATE INDEX sandboxes_by_image ON sandboxes (image);

-- A layer is a volume with all that lies below it, kept under a chain id or the key of a build's step. Images and other
-- layers name it by its volume, since a key may move on to a newer volume. Of one tenant each: to know a digest is not to
-- have its content.
CREATE TABLE layers (
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    key         TEXT NOT NULL,
    volume      TEXT NOT NULL UNIQUE,
    parent      TEXT,
    what        TEXT NOT NULL,
    size_bytes  INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    used_ms     INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
