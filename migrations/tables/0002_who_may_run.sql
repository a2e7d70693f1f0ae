-- The queues of the document, cordons and taints, what is set aside and promised, and runs that ended for others
-- depends: 0001_tables

-- migrate: apply

-- Columns that are mostly empty are NULL then, also where a default is meant: they cost nothing to write.

ALTER TABLE job_view
    ADD COLUMN min_gpus bigint,
    ADD COLUMN within text,
    ADD COLUMN within_required boolean,
    ADD COLUMN max_runtime_s bigint,
    ADD COLUMN preemptible boolean,
    ADD COLUMN borrowing boolean,
    ADD COLUMN gpus_placed bigint,
    ADD COLUMN gpu_type text,
    ADD COLUMN evictions bigint,
    ADD COLUMN evicted_for text COLLATE "C",
    ADD COLUMN promise bigint,
    ADD COLUMN promised_start timestamptz,
    ADD COLUMN earmark bigint;

ALTER TABLE run_view
    ADD COLUMN saved_at timestamptz,
    ADD COLUMN checkpoint bigint,
    ADD COLUMN evicted_for text COLLATE "C",
    ADD COLUMN evicted_at timestamptz,
    ADD COLUMN moved boolean,
    ADD COLUMN lost_gpu_s double precision;
CREATE INDEX run_view_evicted ON run_view (evicted_at) WHERE evicted_for IS NOT NULL;

ALTER TABLE node_view
    ADD COLUMN taints text[] NOT NULL DEFAULT '{}',
    ADD COLUMN cordoned_at timestamptz,
    ADD COLUMN cordoned_by text,
    ADD COLUMN cordon_reason text;

ALTER TABLE gpu_view ADD COLUMN earmarked_for text COLLATE "C";
CREATE INDEX gpu_view_earmarked ON gpu_view (earmarked_for) WHERE earmarked_for IS NOT NULL;

ALTER TABLE queue_view
    ADD COLUMN listed boolean NOT NULL DEFAULT false,
    ADD COLUMN parent text NOT NULL DEFAULT '',
    ADD COLUMN weight bigint NOT NULL DEFAULT 1,
    ADD COLUMN bounds jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN discipline text NOT NULL DEFAULT 'best_effort',
    ADD COLUMN stop text NOT NULL DEFAULT 'none',
    ADD COLUMN pending_max bigint,
    ADD COLUMN running_max bigint,
    ADD COLUMN used jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN borrowed bigint NOT NULL DEFAULT 0;

CREATE TABLE promise_view (
    job_id text COLLATE "C",
    promised bigint,
    team text NOT NULL,
    gpus bigint NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('open', 'kept', 'late', 'untimed', 'dropped')),
    promised_at timestamptz NOT NULL,
    first_start timestamptz,
    start timestamptz,
    moves bigint NOT NULL,
    causes jsonb NOT NULL,
    cause text,
    ended_at timestamptz,
    position bigint NOT NULL,
    PRIMARY KEY (job_id, promised)
);
CREATE INDEX promise_view_newest ON promise_view (promised);

-- migrate: rollback

DROP TABLE promise_view;
ALTER TABLE queue_view
    DROP COLUMN listed, DROP COLUMN parent, DROP COLUMN weight, DROP COLUMN bounds, DROP COLUMN discipline,
    DROP COLUMN stop, DROP COLUMN pending_max, DROP COLUMN running_max, DROP COLUMN used, DROP COLUMN borrowed;
ALTER TABLE gpu_view DROP COLUMN earmarked_for;
ALTER TABLE node_view
    DROP COLUMN taints, DROP COLUMN cordoned_at, DROP COLUMN cordoned_by, DROP COLUMN cordon_reason;
ALTER TABLE run_view
    DROP COLUMN saved_at, DROP COLUMN checkpoint, DROP COLUMN evicted_for, DROP COLUMN evicted_at, DROP COLUMN moved,
    DROP COLUMN lost_gpu_s;
ALTER TABLE job_view
    DROP COLUMN min_gpus, DROP COLUMN within, DROP COLUMN within_required, DROP COLUMN max_runtime_s,
    DROP COLUMN preemptible, DROP COLUMN borrowing, DROP COLUMN gpus_placed, DROP COLUMN gpu_type,
    DROP COLUMN evictions, DROP COLUMN evicted_for, DROP COLUMN promise, DROP COLUMN promised_start, DROP COLUMN earmark;
