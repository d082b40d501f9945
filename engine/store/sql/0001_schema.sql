-- Schema version 1: the event log, the projections that are folded from it, and the claims.
--
-- Times are wall-clock milliseconds. JSON is canonical and kept as bytes, so that what can't be decoded can
-- still be read and named. The tables keep their rowid: WITHOUT ROWID halves the throughput of the log.

-- The truth: an append-only log per session, seq 0, 1, 2 … without gaps.
CREATE TABLE event (
    session_id   TEXT    NOT NULL,
    seq          INTEGER NOT NULL CHECK (seq >= 0),
    event_id     TEXT    NOT NULL UNIQUE,
    type         TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    created      INTEGER NOT NULL,
    execution_id TEXT,
    data         BLOB    NOT NULL,
    metadata     BLOB,
    location     TEXT,
    PRIMARY KEY (session_id, seq)
) STRICT;

-- The seq of the latest event of each session.
CREATE TABLE sequence (
    session_id TEXT    NOT NULL PRIMARY KEY,
    latest_seq INTEGER NOT NULL
) STRICT;

-- No event without its sequence: one insert does both, whoever makes it.
CREATE TRIGGER event_moves_sequence AFTER INSERT ON event
BEGIN
    INSERT INTO sequence (session_id, latest_seq) VALUES (new.session_id, new.seq)
    ON CONFLICT (session_id) DO UPDATE SET latest_seq = excluded.latest_seq;
END;

-- Projection: what is known of each session. A deleted one stays as a tombstone.
CREATE TABLE session (
    session_id TEXT    NOT NULL PRIMARY KEY,
    title      TEXT    NOT NULL,
    location   TEXT,
    model      TEXT    NOT NULL,
    agent      TEXT    NOT NULL,
    system     TEXT    NOT NULL,
    created    INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    deleted    INTEGER NOT NULL CHECK (deleted IN (0, 1))
) STRICT;

-- Projection: the inbox. `admission` orders inputs over all sessions, and survives a VACUUM.
CREATE TABLE input (
    admission    INTEGER NOT NULL PRIMARY KEY,
    input_id     TEXT    NOT NULL UNIQUE,
    session_id   TEXT    NOT NULL REFERENCES session (session_id),
    kind         TEXT    NOT NULL,
    delivery     TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    admitted_seq INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    parked       INTEGER NOT NULL CHECK (parked IN (0, 1))
) STRICT;

CREATE INDEX input_by_session ON input (session_id, admitted_seq);
CREATE INDEX input_pending ON input (session_id, parked, delivery, admitted_seq) WHERE state = 'pending';

-- Who executes a session, until when, and how far it got.
CREATE TABLE execution_claim (
    session_id           TEXT    NOT NULL PRIMARY KEY REFERENCES session (session_id),
    execution_id         TEXT    NOT NULL,
    owner_id             TEXT    NOT NULL,
    generation           INTEGER NOT NULL,
    phase                TEXT    NOT NULL,
    assistant_message_id TEXT,
    assistant_seq        INTEGER NOT NULL,
    expires_at           INTEGER NOT NULL,
    created_at           INTEGER NOT NULL,
    version              INTEGER NOT NULL,
    interrupt_seq        INTEGER
) STRICT;

CREATE INDEX execution_claim_due ON execution_claim (expires_at, session_id);

-- The generation of each session's latest claim. Never reset and never deleted, so it has no foreign key.
CREATE TABLE session_fence (
    session_id TEXT    NOT NULL PRIMARY KEY,
    generation INTEGER NOT NULL
) STRICT;

-- How often a session was taken over, and why it isn't executed any more (quarantine).
CREATE TABLE recovery (
    session_id              TEXT    NOT NULL PRIMARY KEY REFERENCES session (session_id),
    execution_id            TEXT    NOT NULL,
    previous_execution_id   TEXT,
    continuation_message_id TEXT,
    wake_pending            INTEGER NOT NULL CHECK (wake_pending IN (0, 1)),
    takeovers               INTEGER NOT NULL,
    recovery_error          TEXT
) STRICT;

CREATE INDEX recovery_quarantined ON recovery (session_id) WHERE recovery_error IS NOT NULL;

-- Grows by one with every commit of a writer: what tells, after a COMMIT failed, whether it was applied.
CREATE TABLE writer_mark (
    writer_id TEXT    NOT NULL PRIMARY KEY,
    mark      INTEGER NOT NULL
) STRICT;
