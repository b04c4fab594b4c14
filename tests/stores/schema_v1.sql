-- A store as schema version 1 wrote it: never changed, opened by every later version.
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL, user TEXT NOT NULL, session TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL, last_seq INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0, owner TEXT, since REAL, UNIQUE (app, user, session)
);
CREATE INDEX sessions_updated ON sessions (updated);
CREATE TABLE records (
    session INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (session, seq), UNIQUE (session, id)
) WITHOUT ROWID;
CREATE TABLE guards (
    session INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (session, name)
) WITHOUT ROWID;
CREATE TABLE runs (run_id TEXT NOT NULL, session INTEGER NOT NULL, PRIMARY KEY (run_id, session)) WITHOUT ROWID;
CREATE TABLE unfinished (
    session INTEGER NOT NULL, run_id TEXT NOT NULL, opened REAL NOT NULL, ended INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session, run_id)
) WITHOUT ROWID;
CREATE TABLE drafts (
    session INTEGER NOT NULL, message_id TEXT NOT NULL, run_id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (session, message_id)
) WITHOUT ROWID;
CREATE TABLE shared (
    app TEXT NOT NULL, user TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (app, user, key)
) WITHOUT ROWID;
CREATE TABLE owners (owner TEXT PRIMARY KEY, beat REAL NOT NULL, ttl REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE tombstones (
    app TEXT NOT NULL, user TEXT NOT NULL, session TEXT NOT NULL,
    created REAL NOT NULL, erased REAL NOT NULL, records INTEGER NOT NULL, erased_by TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (app, user, session)
) WITHOUT ROWID;

INSERT INTO sessions VALUES (1, 'app', 'ann', 's1', 100.0, 101.0, 2, 3, 'gone:1:abc', 100.5);
INSERT INTO records VALUES (1, 1, 'a', '{"type":"RunStarted","id":"a","time":1.0,"run_id":"r","input":{"parts":[{"part":"text","text":"hi"}]}}');
INSERT INTO records VALUES (1, 2, 'b', '{"type":"Message","id":"b","time":2.0,"run_id":"r","author":"root","parts":[{"part":"text","text":"hello"}]}');
INSERT INTO guards VALUES (1, 'g', 'v');
INSERT INTO runs VALUES ('r', 1);
INSERT INTO unfinished VALUES (1, 'r', 100.7, 0);
INSERT INTO drafts VALUES (1, 'm', 'r', '{"message_id":"m","run_id":"r","author":"root","parts":[]}');
INSERT INTO shared VALUES ('app', '', 'app:theme', '"dark"');
INSERT INTO owners VALUES ('gone:1:abc', 5.0, 10.0);
INSERT INTO tombstones VALUES ('app', 'ann', 'old', 1.0, 2.0, 3, 'ann', 'asked');
PRAGMA application_id = 0x48565430;
PRAGMA user_version = 1;
