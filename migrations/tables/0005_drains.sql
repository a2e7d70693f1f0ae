-- What drains a node, and will; when it was retired; how far its clock is off; how bad a lemon it was last judged
-- depends: 0003_credits

-- migrate: apply

ALTER TABLE node_view
    ADD COLUMN drain jsonb,
    ADD COLUMN windows jsonb,
    ADD COLUMN retired_at timestamptz,
    ADD COLUMN patience_s double precision,
    ADD COLUMN ahead_s double precision,
    ADD COLUMN score bigint;

-- migrate: rollback

ALTER TABLE node_view
    DROP COLUMN drain, DROP COLUMN windows, DROP COLUMN retired_at, DROP COLUMN patience_s, DROP COLUMN ahead_s,
    DROP COLUMN score;
