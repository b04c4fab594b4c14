-- A store as schema version 2 wrote it: never changed, opened by every later version.
CREATE TABLE blobs (
    number INTEGER PRIMARY KEY,            -- random, so that it is known before anything is written
    session INTEGER NOT NULL,              -- 0 where the user owns it
    app TEXT NOT NULL, user TEXT NOT NULL, -- empty where the session owns it
    name TEXT NOT NULL,
    version INTEGER,                       -- NULL until all chunks are there
    id TEXT,                               -- a save that is repeated has the same
    owner TEXT NOT NULL,                   -- the instance that saves or saved it
    mime_type TEXT NOT NULL, size INTEGER NOT NULL,
    UNIQUE (session, app, user, name, version)
);
INSERT INTO "blobs" VALUES(291686151399621755,0,'app','ann','user:photo',0,NULL,'host:1:0123456789ab','image/png',2);
INSERT INTO "blobs" VALUES(8419304003697575589,1,'','','note.txt',0,'call-1','host:1:0123456789ab','text/plain',5);
INSERT INTO "blobs" VALUES(8614739202808479368,1,'','','note.txt',1,NULL,'host:1:0123456789ab','text/plain',5);
CREATE TABLE chunks (
    blob INTEGER NOT NULL, place INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (blob, place)
) WITHOUT ROWID;
INSERT INTO "chunks" VALUES(291686151399621755,0,X'8950');
INSERT INTO "chunks" VALUES(8419304003697575589,0,X'6669727374');
INSERT INTO "chunks" VALUES(8614739202808479368,0,X'6E65776572');
CREATE TABLE drafts (
    session INTEGER NOT NULL, message_id TEXT NOT NULL, run_id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (session, message_id)
) WITHOUT ROWID;
CREATE TABLE guards (
    session INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (session, name)
) WITHOUT ROWID;
CREATE TABLE owners (
    owner TEXT PRIMARY KEY, beat REAL NOT NULL, ttl REAL NOT NULL  -- the machine's monotonic clock
) WITHOUT ROWID;
CREATE TABLE records (
    session INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (session, seq), UNIQUE (session, id)
) WITHOUT ROWID;
INSERT INTO "records" VALUES(1,1,'a',X'7B2274797065223A224D657373616765222C226964223A2261222C2274696D65223A312E302C2272756E5F6964223A2272756E222C22617574686F72223A22726F6F74222C227061727473223A5B7B2270617274223A2274657874222C2274657874223A226869227D5D7D');
CREATE TABLE runs (                        -- every run that ever was, to be found
    run_id TEXT NOT NULL, session INTEGER NOT NULL, PRIMARY KEY (run_id, session)
) WITHOUT ROWID;
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again after an erase
    app TEXT NOT NULL, user TEXT NOT NULL, session TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,                 -- unique in the store, so that a listing can be continued
    last_seq INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0,      -- grows with each claim
    owner TEXT, since REAL,                -- the lease; NULL if nobody holds it
    UNIQUE (app, user, session)
);
INSERT INTO "sessions" VALUES(1,'app','ann','s1',1.79607717273164319993e+09,1.79607717273216557505e+09,1,0,NULL,NULL);
CREATE TABLE shared (                      -- app: keys have no user
    app TEXT NOT NULL, user TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (app, user, key)
) WITHOUT ROWID;
CREATE TABLE tombstones (
    app TEXT NOT NULL, user TEXT NOT NULL, session TEXT NOT NULL,
    created REAL NOT NULL, erased REAL NOT NULL, records INTEGER NOT NULL,
    erased_by TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (app, user, session)
) WITHOUT ROWID;
CREATE TABLE unfinished (                  -- the runs with business left
    session INTEGER NOT NULL, run_id TEXT NOT NULL,
    opened REAL NOT NULL,                  -- unique, as sessions.updated is
    ended INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session, run_id)
) WITHOUT ROWID;
CREATE INDEX sessions_updated ON sessions (updated);
CREATE INDEX blobs_begun ON blobs (number) WHERE version IS NULL;
PRAGMA application_id = 1213617200;
PRAGMA user_version = 2;
