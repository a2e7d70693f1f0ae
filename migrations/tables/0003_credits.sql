-- Accounts, their entries, what was used, what is reserved, what operators asked, and months that are closed
-- depends: 0002_who_may_run

-- migrate: apply

ALTER TABLE job_view ADD COLUMN account text;

CREATE TABLE account_view (
    account text COLLATE "C" PRIMARY KEY,
    queues text[] NOT NULL,
    overdraft_micro bigint,
    granted_micro bigint NOT NULL,
    adjusted_micro bigint NOT NULL,
    committed_micro bigint NOT NULL,
    reserved_micro bigint NOT NULL,
    balance_micro bigint NOT NULL,
    debt_micro bigint NOT NULL,
    reservations bigint NOT NULL,
    entry bigint NOT NULL,
    listed boolean NOT NULL,
    closing boolean NOT NULL,
    closed boolean NOT NULL,
    position bigint NOT NULL
) WITH (fillfactor = 50);

-- Statements are added up by kind: from the index alone.
CREATE TABLE credit_entry (
    account text COLLATE "C",
    entry bigint,
    kind text NOT NULL CHECK (kind IN (
        'granted', 'adjusted', 'refused', 'reserved', 'renewed', 'running_out', 'committed', 'refunded', 'uncovered',
        'usage', 'closed'
    )),
    amount_micro bigint NOT NULL,
    balance_micro bigint NOT NULL,
    run_id text COLLATE "C",
    job_id text COLLATE "C",
    team text,
    reservation bigint,
    cause text,
    reason text,
    by text,
    ask_id text COLLATE "C",
    gpu_us bigint,
    of_entry bigint,
    evidence text[] NOT NULL,
    at timestamptz NOT NULL,
    position bigint NOT NULL,
    event_id text NOT NULL,
    gpus bigint,
    covers_s bigint,
    until timestamptz,
    PRIMARY KEY (account, entry) INCLUDE (kind, amount_micro)
);
CREATE INDEX credit_entry_by_time ON credit_entry (account, at, entry);
CREATE INDEX credit_entry_charged ON credit_entry (account, at, entry) WHERE kind IN ('granted', 'adjusted');
-- What operators gave back of what a job's runs were charged: from the commits to the few adjustments that name them.
CREATE INDEX credit_entry_committed ON credit_entry (job_id) WHERE kind = 'committed';
CREATE INDEX credit_entry_given_back ON credit_entry (account, of_entry) WHERE kind = 'adjusted' AND cause = 'refund';

-- `month` is the one that a record counts in: that of `counted_at`, the CloudEvents time, in UTC.
CREATE TABLE usage_record (
    usage_id text COLLATE "C" PRIMARY KEY,
    account text COLLATE "C" NOT NULL,
    entry bigint NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    team text NOT NULL,
    gpu_type text NOT NULL,
    gpu_us bigint NOT NULL,
    amount_micro bigint NOT NULL,
    nano_per_gpu_hour bigint NOT NULL,
    began timestamptz NOT NULL,
    ended timestamptz NOT NULL,
    corrects boolean NOT NULL,
    cause text NOT NULL,
    prices bigint NOT NULL,
    counted_at timestamptz NOT NULL,
    month text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    position bigint NOT NULL,
    event_id text NOT NULL
);
CREATE INDEX usage_record_in_order ON usage_record (position);
CREATE INDEX usage_record_of_account ON usage_record (account, month, position);
CREATE INDEX usage_record_charged ON usage_record (month, account, began, usage_id);

CREATE TABLE bill_view (
    run_id text COLLATE "C" PRIMARY KEY,
    job_id text COLLATE "C" NOT NULL,
    team text NOT NULL,
    account text COLLATE "C" NOT NULL,
    reservation bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('reserved', 'settled')),
    declared boolean NOT NULL,
    covers_s bigint NOT NULL,
    reserved_micro bigint NOT NULL,
    committed_micro bigint NOT NULL,
    refunded_micro bigint NOT NULL,
    uncovered_micro bigint NOT NULL,
    bearer text,
    gpu_type text,
    nano_per_gpu_hour bigint NOT NULL,
    gpu_us bigint NOT NULL,
    waived_us bigint NOT NULL,
    outcome text,
    running_out timestamptz,
    evidence text[] NOT NULL,
    prices bigint NOT NULL,
    reserved_at timestamptz NOT NULL,
    settled_at timestamptz,
    position bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX bill_view_of_job ON bill_view (job_id, reserved_at);
CREATE INDEX bill_view_reserved ON bill_view (account, reservation) WHERE state = 'reserved';

CREATE TABLE ask_view (
    ask_id text COLLATE "C" PRIMARY KEY,
    account text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('grant', 'adjustment')),
    amount_micro bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('asked', 'done', 'refused')),
    code text,
    message text,
    entry bigint,
    by text NOT NULL,
    reason text NOT NULL,
    asked_at timestamptz NOT NULL,
    position bigint NOT NULL
);
CREATE INDEX ask_view_of_account ON ask_view (account, asked_at, ask_id);
CREATE INDEX ask_view_waiting ON ask_view (asked_at) WHERE state = 'asked';

CREATE TABLE period_view (
    month text COLLATE "C" PRIMARY KEY,
    closed_at timestamptz NOT NULL,
    position bigint NOT NULL
);

-- migrate: rollback

DROP TABLE period_view, ask_view, bill_view, usage_record, credit_entry, account_view;
ALTER TABLE job_view DROP COLUMN account;
