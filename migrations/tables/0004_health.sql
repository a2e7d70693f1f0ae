-- What health says of each GPU, whether its run has ended and left it, and what needed a person
-- depends: 0003_credits

-- migrate: apply

ALTER TABLE gpu_view
    ADD COLUMN cleaning boolean,
    ADD COLUMN health jsonb,
    ADD COLUMN judged jsonb;

CREATE TABLE alarm_view (
    raised bigint PRIMARY KEY,
    code text NOT NULL,
    message text NOT NULL,
    hint text NOT NULL,
    node_ids text[] NOT NULL,
    count bigint NOT NULL,
    raised_at timestamptz NOT NULL,
    cleared_at timestamptz,
    position bigint NOT NULL
);
CREATE INDEX alarm_view_raised ON alarm_view (code) WHERE cleared_at IS NULL;

-- migrate: rollback

DROP TABLE alarm_view;
ALTER TABLE gpu_view DROP COLUMN cleaning, DROP COLUMN health, DROP COLUMN judged;
