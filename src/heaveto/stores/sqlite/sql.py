"""The statements, by name."""

# --- transactions

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
DATA_VERSION = "PRAGMA data_version"
NO_BUSY_TIMEOUT = "PRAGMA busy_timeout=0"
SYNC_FULL = "PRAGMA synchronous=FULL"
SYNC_NORMAL = "PRAGMA synchronous=NORMAL"

# --- sessions

SELECT_SESSION = """
    SELECT id, created, updated, last_seq, token, owner, since FROM sessions WHERE app=? AND user=? AND session=?"""
INSERT_SESSION = "INSERT INTO sessions (app, user, session, created, updated) VALUES (?, ?, ?, ?, ?)"
UPDATE_LOG = "UPDATE sessions SET last_seq=?, updated=? WHERE id=?"
UPDATE_LEASE = "UPDATE sessions SET token=?, owner=?, since=? WHERE id=?"
SELECT_NEWEST = "SELECT max(updated) FROM sessions"
SELECT_STAMP = "SELECT last_seq, token, owner FROM sessions WHERE app=? AND user=? AND session=?"
SELECT_INFO = """
    SELECT app, user, session, created, updated, last_seq,
           (SELECT run_id FROM unfinished u WHERE u.session = sessions.id AND NOT u.ended ORDER BY u.opened LIMIT 1)
    FROM sessions"""
WHERE_KEY = " WHERE app=? AND user=? AND session=?"
SELECT_LEASE = "SELECT owner, since FROM sessions WHERE app=? AND user=? AND session=?"

# --- records

INSERT_RECORD = "INSERT INTO records (session, seq, id, body) VALUES (?, ?, ?, ?)"
DELETE_RECORDS_AFTER = "DELETE FROM records WHERE session=? AND seq>?"
SELECT_SEQ = "SELECT seq FROM records WHERE session=? AND id=?"
SELECT_RECORDS = """
    SELECT r.seq, r.body FROM sessions s LEFT JOIN records r ON r.session = s.id AND r.seq > ?
    WHERE s.app=? AND s.user=? AND s.session=? ORDER BY r.seq LIMIT ?"""

# --- guards

SELECT_GUARD = "SELECT value FROM guards WHERE session=? AND name=?"
INSERT_GUARD = "INSERT INTO guards (session, name, value) VALUES (?, ?, ?)"
FIND_GUARD = """
    SELECT g.value FROM sessions s LEFT JOIN guards g ON g.session = s.id AND g.name = ?
    WHERE s.app=? AND s.user=? AND s.session=?"""

# --- runs

INSERT_RUN = "INSERT INTO runs (run_id, session) VALUES (?, ?) ON CONFLICT DO NOTHING"
INSERT_UNFINISHED = "INSERT INTO unfinished (session, run_id, opened) VALUES (?, ?, ?)"
END_RUN = "UPDATE unfinished SET ended=1 WHERE session=? AND run_id=?"
SETTLE_RUN = "DELETE FROM unfinished WHERE session=? AND run_id=? AND ended"
IS_OPEN = "SELECT 1 FROM unfinished WHERE session=? AND run_id=? AND NOT ended"
IS_ELSEWHERE = "SELECT 1 FROM runs WHERE run_id=? AND session<>?"
HAS_RUN = "SELECT 1 FROM runs WHERE run_id=? AND session=?"
FIND_RUN = """
    SELECT s.app, s.user, s.session FROM runs r JOIN sessions s ON s.id = r.session WHERE r.run_id=?
    ORDER BY s.id LIMIT 1"""
SELECT_UNFINISHED = """
    SELECT s.app, s.user, s.session, u.run_id, u.ended FROM unfinished u JOIN sessions s ON s.id = u.session
    ORDER BY u.opened"""
SELECT_UNFINISHED_OF = """
    SELECT s.app, s.user, s.session, u.run_id, u.ended FROM sessions s JOIN unfinished u ON u.session = s.id
    WHERE s.app=? AND s.user=? AND s.session=? ORDER BY u.opened"""

# --- drafts

UPSERT_DRAFT = "INSERT OR REPLACE INTO drafts (session, message_id, run_id, body) VALUES (?, ?, ?, ?)"
DELETE_DRAFT = "DELETE FROM drafts WHERE session=? AND message_id=?"
DELETE_DRAFTS_OF_RUN = "DELETE FROM drafts WHERE session=? AND run_id=?"
HAS_DRAFTS = "SELECT 1 FROM drafts WHERE session=? LIMIT 1"
SELECT_DRAFTS = """
    SELECT d.body FROM sessions s LEFT JOIN drafts d ON d.session = s.id AND d.run_id = ?
    WHERE s.app=? AND s.user=? AND s.session=? ORDER BY d.message_id"""

# --- blobs: an owner is (session, '', '') or (0, app, user)

INSERT_BLOB = """
    INSERT INTO blobs (number, session, app, user, name, id, owner, mime_type, size)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_CHUNK = "INSERT OR REPLACE INTO chunks (blob, place, content) VALUES (?, ?, ?)"
IS_BEGUN = "SELECT 1 FROM blobs WHERE number=? AND version IS NULL"
SIZE_OF_CHUNKS = "SELECT coalesce(sum(length(content)), 0) FROM chunks WHERE blob=?"
_NAMED = " FROM blobs WHERE session=? AND app=? AND user=? AND name=? AND version"
FIND_SAVED = f"SELECT version{_NAMED} IS NOT NULL AND id=?"
SELECT_VERSIONS = f"SELECT version{_NAMED} IS NOT NULL ORDER BY version"
PUBLISH_BLOB = f"UPDATE blobs SET version=(SELECT coalesce(max(version) + 1, 0){_NAMED} IS NOT NULL) WHERE number=?"
SELECT_VERSION = "SELECT version FROM blobs WHERE number=?"
FIND_NEWEST = f"SELECT number, mime_type, size{_NAMED} IS NOT NULL ORDER BY version DESC LIMIT 1"
FIND_VERSION = f"SELECT number, mime_type, size{_NAMED}=?"
SELECT_CHUNKS = "SELECT content FROM chunks WHERE blob=? AND place>=? AND place<? ORDER BY place"
FIND_SESSION = "SELECT id FROM sessions WHERE app=? AND user=? AND session=?"
LIST_BLOBS = """
    SELECT name, max(version), mime_type, size FROM blobs WHERE session=? AND app='' AND user=''
        AND version IS NOT NULL GROUP BY name
    UNION ALL
    SELECT name, max(version), mime_type, size FROM blobs WHERE session=0 AND app=? AND user=?
        AND version IS NOT NULL GROUP BY name"""
DELETE_CHUNKS_NAMED = f"DELETE FROM chunks WHERE blob IN (SELECT number{_NAMED} IS NOT NULL)"
DELETE_NAMED = f"DELETE{_NAMED} IS NOT NULL"
DELETE_CHUNKS_BEGUN = "DELETE FROM chunks WHERE blob IN (SELECT number FROM blobs WHERE number=? AND version IS NULL)"
DELETE_BEGUN = "DELETE FROM blobs WHERE number=? AND version IS NULL"
SELECT_BEGUN = "SELECT number, owner FROM blobs WHERE version IS NULL"

# --- shared state: ';' is the character after ':', so the ranges hold one prefix each

UPSERT_SHARED = "INSERT OR REPLACE INTO shared (app, user, key, value) VALUES (?, ?, ?, ?)"
DELETE_SHARED = "DELETE FROM shared WHERE app=? AND user=? AND key=?"
SELECT_SHARED = """
    SELECT key, value FROM shared WHERE app=? AND user='' AND key >= 'app:' AND key < 'app;'
    UNION ALL
    SELECT key, value FROM shared WHERE app=? AND user=? AND key >= 'user:' AND key < 'user;'"""

# --- owners

UPSERT_OWNER = "INSERT OR REPLACE INTO owners (owner, beat, ttl) VALUES (?, ?, ?)"
SELECT_OWNER = "SELECT beat, ttl FROM owners WHERE owner=?"
DELETE_OWNER = "DELETE FROM owners WHERE owner=?"

# --- erasing

SELECT_BODIES = "SELECT body FROM records WHERE session=?"
DELETE_RUN = "DELETE FROM runs WHERE run_id=? AND session=?"
ERASE_CONTENT = (
    "DELETE FROM records WHERE session=?",
    "DELETE FROM guards WHERE session=?",
    "DELETE FROM unfinished WHERE session=?",
    "DELETE FROM drafts WHERE session=?",
    "DELETE FROM chunks WHERE blob IN (SELECT number FROM blobs WHERE session=?)",
    "DELETE FROM blobs WHERE session=?",
    "DELETE FROM sessions WHERE id=?",
)
INSERT_TOMBSTONE = """
    INSERT INTO tombstones (app, user, session, created, erased, records, erased_by, reason)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
SELECT_TOMBSTONE = """
    SELECT created, erased, records, erased_by, reason FROM tombstones WHERE app=? AND user=? AND session=?"""
