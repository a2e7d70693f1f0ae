-- The tables that the log is folded into
-- depends:

-- migrate: apply

CREATE TABLE projection_position (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    log_id text NOT NULL,
    position bigint NOT NULL,
    at timestamptz,
    fold integer NOT NULL
);

CREATE TABLE job_view (
    job_id text COLLATE "C" PRIMARY KEY,
    team text NOT NULL,
    name text NOT NULL,
    key text NOT NULL,
    submitted_by text NOT NULL,
    priority text NOT NULL,
    gpus bigint NOT NULL,
    nodes_asked bigint NOT NULL,
    gpus_per_node bigint NOT NULL,
    gpu_types text NOT NULL,
    state text NOT NULL CHECK (state IN (
        'queued', 'admitted', 'placed', 'running', 'stopping',
        'succeeded', 'failed', 'cancelled', 'timed_out', 'rejected'
    )),
    hold_code text,
    attempt bigint NOT NULL,
    run_id text COLLATE "C",
    nodes bigint NOT NULL,
    cause text,
    exit_code bigint,
    failed_node text,
    message text NOT NULL,
    cancel_reason text,
    cancel_at timestamptz,
    not_before timestamptz,
    submitted_at timestamptz NOT NULL,
    admitted_at timestamptz,
    placed_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    submitted bigint NOT NULL,
    position bigint NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX job_view_newest ON job_view (submitted);
CREATE INDEX job_view_of_team ON job_view (team, submitted);
CREATE INDEX job_view_open ON job_view (submitted) WHERE ended_at IS NULL;

CREATE TABLE run_view (
    run_id text COLLATE "C" PRIMARY KEY,
    job_id text COLLATE "C" NOT NULL,
    team text NOT NULL,
    attempt bigint NOT NULL,
    state text NOT NULL CHECK (state IN (
        'placed', 'running', 'stopping', 'requeued', 'succeeded', 'failed', 'cancelled', 'timed_out'
    )),
    cause text,
    exit_code bigint,
    failed_node text,
    gpus bigint NOT NULL,
    nodes bigint NOT NULL,
    node_ids text[] NOT NULL,
    placed_at timestamptz NOT NULL,
    started_at timestamptz,
    stopping_at timestamptz,
    ended_at timestamptz,
    position bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX run_view_of_job ON run_view (job_id, attempt);

CREATE TABLE share_view (
    run_id text COLLATE "C",
    node_id text COLLATE "C",
    node_epoch bigint NOT NULL,
    place bigint NOT NULL,
    slots int[] NOT NULL,
    released int[] NOT NULL,
    state text NOT NULL CHECK (state IN ('placed', 'started', 'ended', 'released')),
    reason text,
    exit_code bigint,
    rank bigint,
    message text NOT NULL,
    started_at timestamptz,
    ended_at timestamptz,
    released_at timestamptz,
    position bigint NOT NULL,
    PRIMARY KEY (run_id, node_id)
) WITH (fillfactor = 50);

CREATE TABLE node_view (
    node_id text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('up', 'suspect', 'lost')),
    boot_id text NOT NULL,
    instance text NOT NULL,
    gpu_type text NOT NULL,
    gpus bigint NOT NULL,
    address text NOT NULL,
    port_base bigint NOT NULL,
    agent_version text NOT NULL,
    labels jsonb NOT NULL,
    silent_s double precision,
    joined_at timestamptz NOT NULL,
    state_at timestamptz NOT NULL,
    position bigint NOT NULL
);

CREATE TABLE gpu_view (
    node_id text COLLATE "C",
    slot integer,
    epoch bigint NOT NULL,
    uuid text NOT NULL,
    gpu_type text NOT NULL,
    state text NOT NULL CHECK (state IN ('unclean', 'free', 'held', 'lost', 'absent')),
    run_id text COLLATE "C",
    position bigint NOT NULL,
    PRIMARY KEY (node_id, slot)
) WITH (fillfactor = 50);

CREATE TABLE queue_view (
    team text COLLATE "C" PRIMARY KEY,
    queued bigint NOT NULL,
    admitted bigint NOT NULL,
    placed bigint NOT NULL,
    running bigint NOT NULL,
    stopping bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    timed_out bigint NOT NULL,
    rejected bigint NOT NULL,
    gpus_waiting bigint NOT NULL,
    gpus_held bigint NOT NULL,
    position bigint NOT NULL
);

CREATE TABLE event_index (
    position bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    type text NOT NULL,
    subject text NOT NULL,
    event_id text NOT NULL,
    job_id text COLLATE "C",
    run_id text COLLATE "C",
    node_id text COLLATE "C",
    by text
);
CREATE INDEX event_index_of_job ON event_index (job_id, position) WHERE job_id IS NOT NULL;
CREATE INDEX event_index_of_node ON event_index (node_id, position) WHERE node_id IS NOT NULL;

CREATE TABLE unreadable (
    position bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    subject text NOT NULL,
    named text NOT NULL,
    reason text NOT NULL
);

-- migrate: rollback

DROP TABLE unreadable, event_index, queue_view, gpu_view, node_view, share_view, run_view, job_view, projection_position;
