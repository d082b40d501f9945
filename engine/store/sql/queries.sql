-- Every statement of the store, by name. Each has one line that says what it does; the numbered
-- parameters are the arguments of the method of the same name, in its order.

-- name: session
-- One session.
SELECT session_id, title, location, model, agent, system, created, status, deleted
FROM session WHERE session_id = ?1;

-- name: sessions
-- Sessions by id after ?1, at most ?2.
SELECT session_id, title, location, model, agent, system, created, status, deleted
FROM session WHERE session_id > ?1 ORDER BY session_id LIMIT ?2;

-- name: latest_seq
-- The seq of the latest event of a session.
SELECT latest_seq FROM sequence WHERE session_id = ?1;

-- name: events
-- Events of session ?1 with seq above ?2 in order, at most ?3.
SELECT event_id, session_id, seq, type, version, created, execution_id, data, metadata, location
FROM event WHERE session_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3;

-- name: event_by_id
-- One event.
SELECT event_id, session_id, seq, type, version, created, execution_id, data, metadata, location
FROM event WHERE event_id = ?1;

-- name: latest_event
-- The latest event of session ?1 and type ?2; walks back from the end of the log, so ask for frequent types.
SELECT event_id, session_id, seq, type, version, created, execution_id, data, metadata, location
FROM event WHERE session_id = ?1 AND type = ?2 ORDER BY seq DESC LIMIT 1;

-- name: claim
-- The claim of one session.
SELECT session_id, execution_id, owner_id, generation, phase, assistant_message_id, assistant_seq,
       expires_at, created_at, version, interrupt_seq
FROM execution_claim WHERE session_id = ?1;

-- name: claims
-- Claims by session id after ?1, at most ?2.
SELECT session_id, execution_id, owner_id, generation, phase, assistant_message_id, assistant_seq,
       expires_at, created_at, version, interrupt_seq
FROM execution_claim WHERE session_id > ?1 ORDER BY session_id LIMIT ?2;

-- name: claims_due
-- Claims that expired at or before ?1, longest expired first, at most ?2.
SELECT session_id, execution_id, owner_id, generation, phase, assistant_message_id, assistant_seq,
       expires_at, created_at, version, interrupt_seq
FROM execution_claim WHERE expires_at <= ?1 ORDER BY expires_at, session_id LIMIT ?2;

-- name: generation
-- The generation of a session's latest claim.
SELECT generation FROM session_fence WHERE session_id = ?1;

-- name: input
-- One input.
SELECT input_id, session_id, kind, delivery, payload, admitted_seq, state, parked
FROM input WHERE input_id = ?1;

-- name: inputs
-- Every input of a session in the order of admission.
SELECT input_id, session_id, kind, delivery, payload, admitted_seq, state, parked
FROM input WHERE session_id = ?1 ORDER BY admitted_seq, admission;

-- name: pending_inputs
-- Pending, unparked inputs of session ?1 and delivery ?2 in the order of admission, at most ?3.
SELECT input_id, session_id, kind, delivery, payload, admitted_seq, state, parked
FROM input WHERE session_id = ?1 AND state = 'pending' AND parked = 0 AND delivery = ?2
ORDER BY admitted_seq, admission LIMIT ?3;

-- name: pending_count
-- How many inputs of a session are pending, parked ones included.
SELECT count(*) FROM input WHERE session_id = ?1 AND state = 'pending';

-- name: parked_count
-- How many pending inputs of a session are parked.
SELECT count(*) FROM input WHERE session_id = ?1 AND state = 'pending' AND parked = 1;

-- name: sessions_waiting
-- Sessions with pending, unparked input that nobody executes and that may be executed, longest waiting first.
SELECT waiting.session_id
FROM (
    SELECT session_id, min(admission) AS oldest
    FROM input WHERE state = 'pending' AND parked = 0 GROUP BY session_id
) AS waiting
JOIN session ON session.session_id = waiting.session_id AND session.deleted = 0
WHERE NOT EXISTS (SELECT 1 FROM execution_claim AS c WHERE c.session_id = waiting.session_id)
  AND NOT EXISTS (SELECT 1 FROM recovery AS r
                  WHERE r.session_id = waiting.session_id AND r.recovery_error IS NOT NULL)
ORDER BY waiting.oldest LIMIT ?1;

-- name: released
-- Sessions that were released from quarantine and aren't claimed yet.
SELECT session_id FROM recovery AS r
WHERE r.session_id > '' AND r.recovery_error IS NULL
  AND NOT EXISTS (SELECT 1 FROM execution_claim AS c WHERE c.session_id = r.session_id)
ORDER BY r.session_id LIMIT ?1;

-- name: recovery
-- The recovery row of one session.
SELECT session_id, execution_id, previous_execution_id, continuation_message_id, wake_pending, takeovers,
       recovery_error
FROM recovery WHERE session_id = ?1;

-- name: quarantined
-- Recovery rows that hold an error, by session id, at most ?1.
SELECT session_id, execution_id, previous_execution_id, continuation_message_id, wake_pending, takeovers,
       recovery_error
FROM recovery WHERE recovery_error IS NOT NULL ORDER BY session_id LIMIT ?1;

-- name: append_event
-- Insert an event; a trigger moves the session's latest seq to it.
INSERT INTO event (event_id, session_id, seq, type, version, created, execution_id, data, metadata, location)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10);

-- name: put_session
-- Insert a session, or replace what is known of it.
INSERT INTO session (session_id, title, location, model, agent, system, created, status, deleted)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (session_id) DO UPDATE SET
    title = excluded.title, location = excluded.location, model = excluded.model, agent = excluded.agent,
    system = excluded.system, created = excluded.created, status = excluded.status,
    deleted = excluded.deleted;

-- name: put_input
-- Insert an input, or replace what is known of it.
INSERT INTO input (input_id, session_id, kind, delivery, payload, admitted_seq, state, parked)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (input_id) DO UPDATE SET
    session_id = excluded.session_id, kind = excluded.kind, delivery = excluded.delivery,
    payload = excluded.payload, admitted_seq = excluded.admitted_seq, state = excluded.state,
    parked = excluded.parked;

-- name: park_inputs
-- Park the pending inputs of session ?1 that were admitted at or before seq ?2.
UPDATE input SET parked = 1
WHERE session_id = ?1 AND state = 'pending' AND parked = 0 AND admitted_seq <= ?2;

-- name: unpark_inputs
-- Unpark the pending inputs of session ?1 that were admitted at or before seq ?2.
UPDATE input SET parked = 0
WHERE session_id = ?1 AND state = 'pending' AND parked = 1 AND admitted_seq <= ?2;

-- name: put_claim
-- Insert the claim of a session, or replace it.
INSERT INTO execution_claim (session_id, execution_id, owner_id, generation, phase, assistant_message_id,
                             assistant_seq, expires_at, created_at, version, interrupt_seq)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (session_id) DO UPDATE SET
    execution_id = excluded.execution_id, owner_id = excluded.owner_id, generation = excluded.generation,
    phase = excluded.phase, assistant_message_id = excluded.assistant_message_id,
    assistant_seq = excluded.assistant_seq, expires_at = excluded.expires_at,
    created_at = excluded.created_at, version = excluded.version, interrupt_seq = excluded.interrupt_seq;

-- name: delete_claim
-- Delete the claim of a session.
DELETE FROM execution_claim WHERE session_id = ?1;

-- name: put_generation
-- Note the generation of a session's latest claim.
INSERT INTO session_fence (session_id, generation) VALUES (?1, ?2)
ON CONFLICT (session_id) DO UPDATE SET generation = excluded.generation;

-- name: put_recovery
-- Insert the recovery row of a session, or replace it.
INSERT INTO recovery (session_id, execution_id, previous_execution_id, continuation_message_id, wake_pending,
                      takeovers, recovery_error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (session_id) DO UPDATE SET
    execution_id = excluded.execution_id, previous_execution_id = excluded.previous_execution_id,
    continuation_message_id = excluded.continuation_message_id, wake_pending = excluded.wake_pending,
    takeovers = excluded.takeovers, recovery_error = excluded.recovery_error;

-- name: delete_recovery
-- Delete the recovery row of a session.
DELETE FROM recovery WHERE session_id = ?1;

-- name: erase_session
-- Delete every row of a session but its fence; the rows that point to the session go first.
DELETE FROM input WHERE session_id = :session_id;
DELETE FROM execution_claim WHERE session_id = :session_id;
DELETE FROM recovery WHERE session_id = :session_id;
DELETE FROM event WHERE session_id = :session_id;
DELETE FROM sequence WHERE session_id = :session_id;
DELETE FROM session WHERE session_id = :session_id;

-- name: writer_mark
-- How many commits this writer made.
SELECT mark FROM writer_mark WHERE writer_id = ?1;

-- name: bump_writer_mark
-- Count one more commit of this writer, within that commit.
INSERT INTO writer_mark (writer_id, mark) VALUES (?1, 1)
ON CONFLICT (writer_id) DO UPDATE SET mark = mark + 1;

-- name: delete_writer_mark
-- Forget a writer that closes.
DELETE FROM writer_mark WHERE writer_id = ?1;

-- name: data_version
-- A number that changes when another connection has committed.
PRAGMA data_version;
