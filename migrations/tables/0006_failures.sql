-- Whose failure the end of a run was, and where in the log a run begins, so that its evidence is found
-- depends: 0003_credits

-- migrate: apply

ALTER TABLE job_view ADD COLUMN category text;

ALTER TABLE run_view
    ADD COLUMN category text,
    ADD COLUMN placed bigint,
    ADD COLUMN held boolean;
CREATE INDEX run_view_category ON run_view (category) WHERE category IS NOT NULL;

-- migrate: rollback

DROP INDEX run_view_category;
ALTER TABLE run_view DROP COLUMN category, DROP COLUMN placed, DROP COLUMN held;
ALTER TABLE job_view DROP COLUMN category;
