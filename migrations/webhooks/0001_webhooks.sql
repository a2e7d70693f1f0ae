-- Endpoints, their secrets, what was sent to each, and how far into which log that reaches. Never made anew from the log
-- depends:

-- migrate: apply

-- What is here happened outside: a delivery was made, or it was not. No log could say that again.

CREATE TABLE reader (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    log_id text NOT NULL DEFAULT '',
    position bigint NOT NULL DEFAULT 0 -- up to which every wanted event is in `delivery`
);
INSERT INTO reader DEFAULT VALUES;

CREATE TABLE endpoint (
    endpoint_id text COLLATE "C" PRIMARY KEY,
    url text NOT NULL,
    types text[] NOT NULL,
    teams text[] NOT NULL,
    accounts text[] NOT NULL,
    description text NOT NULL,
    enabled boolean NOT NULL DEFAULT true,
    stopped text NOT NULL DEFAULT '', -- why it is not enabled
    after bigint NOT NULL, -- it gets events behind this position
    quiet_until timestamptz NOT NULL DEFAULT '-infinity', -- nothing is sent to it before
    created_at timestamptz NOT NULL,
    created_by text NOT NULL
);

CREATE TABLE secret (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id text COLLATE "C" NOT NULL REFERENCES endpoint ON DELETE CASCADE,
    bytes bytea NOT NULL,
    made_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL DEFAULT 'infinity' -- signs until then
);
CREATE INDEX secret_endpoint ON secret (endpoint_id);

CREATE SEQUENCE claim AS bigint;

CREATE TABLE delivery (
    endpoint_id text COLLATE "C" NOT NULL REFERENCES endpoint ON DELETE CASCADE,
    webhook_id text COLLATE "C" NOT NULL,
    position bigint NOT NULL, -- of the event; 0 for a test
    event_type text NOT NULL,
    document bytea, -- of a test: no log holds it
    state text NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed', 'disabled')),
    attempts integer NOT NULL DEFAULT 0, -- that were begun
    next_try timestamptz NOT NULL,
    claim bigint, -- of the attempt that is being made
    claimed_until timestamptz, -- then it counts as lost
    last_status integer, -- 0: no answer
    last_problem text NOT NULL DEFAULT '',
    last_at timestamptz, -- when the last attempt ended
    made_at timestamptz NOT NULL,
    PRIMARY KEY (endpoint_id, webhook_id)
);
CREATE INDEX delivery_due ON delivery (endpoint_id, next_try) WHERE state = 'waiting';
CREATE INDEX delivery_claimed ON delivery (endpoint_id) WHERE claimed_until IS NOT NULL;
CREATE INDEX delivery_newest ON delivery (endpoint_id, position DESC);
CREATE INDEX delivery_settled ON delivery (last_at) WHERE state <> 'waiting';

CREATE TABLE replay (
    replay_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id text COLLATE "C" NOT NULL REFERENCES endpoint ON DELETE CASCADE,
    after bigint NOT NULL,
    until bigint NOT NULL,
    reached bigint NOT NULL, -- up to which wanted events wait again
    matched bigint NOT NULL DEFAULT 0,
    made_at timestamptz NOT NULL,
    made_by text NOT NULL,
    ended_at timestamptz
);
CREATE UNIQUE INDEX replay_one ON replay (endpoint_id) WHERE ended_at IS NULL;
CREATE INDEX replay_newest ON replay (endpoint_id, replay_id DESC);

-- migrate: rollback

DROP TABLE replay, delivery, secret, endpoint, reader;
DROP SEQUENCE claim;
