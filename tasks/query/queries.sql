-- The named queries: `nightbatch sql --name NAME`. `results`, `failures` and `runs` go together by run_id; `requests` and
-- `rejects` belong to a dataset, which several runs may share: go over runs.dataset_id. A row of `telemetry` is a reading of
-- a card, which stands for `seconds`; the engine's counters in it begin anew with each (session, engine, life).

-- name: by_source
SELECT run_id, source, count(*) AS results, sum(prompt_tokens) AS prompt_tokens, sum(output_tokens) AS output_tokens,
       round(100.0 * sum(cached_tokens) / sum(prompt_tokens), 1) AS cached_percent,
       replace(left(min_by(trim(output_text), abs(length(output_text) - 60)), 70), chr(10), ' ') AS an_answer
FROM results GROUP BY run_id, source ORDER BY run_id, source;

-- name: answers
SELECT r.run_id, r.source, r.custom_id, r.choice_index, q.text AS asked, r.output_text AS answered, r.finish_reason
FROM results r JOIN runs USING (run_id)
JOIN requests q ON q.dataset_id = runs.dataset_id AND q.request_id = r.request_id
ORDER BY r.run_id, r.source, r.file, r.line, r.choice_index;

-- name: rejects_by_reason
SELECT run_id, dataset_id, source, reason, count(*) AS rows,
       any_value(file || ' line ' || line || ': ' || message) AS example
FROM rejects LEFT JOIN runs USING (dataset_id) GROUP BY ALL ORDER BY run_id, dataset_id, rows DESC, source, reason;

-- name: failures
SELECT run_id, source, custom_id, error FROM failures ORDER BY run_id, source, custom_id;

-- name: outcomes
SELECT run_id, source, status, count(*) AS rows FROM
    (SELECT run_id, source, status FROM results UNION ALL SELECT run_id, source, status FROM failures)
GROUP BY ALL ORDER BY run_id, source, status;

-- name: energy
WITH cards AS (
    SELECT run_id, session, card_uuid, any_value(card_name) AS card_name, sum(seconds) AS seconds,
           max(energy_j) - min(energy_j) AS counted_j, sum(power_w * seconds) AS integrated_j
    FROM telemetry WHERE card_uuid IS NOT NULL GROUP BY run_id, session, card_uuid),
lives AS (
    SELECT run_id, max(generated_tokens) AS generated, max(prefilled_tokens) AS prefilled
    FROM telemetry GROUP BY run_id, session, engine, life),
tokens AS (SELECT run_id, sum(generated) AS generated_tokens, sum(prefilled) AS prefilled_tokens FROM lives GROUP BY run_id)
SELECT run_id, count(DISTINCT card_uuid) AS cards, count(DISTINCT session) AS sessions,
       round(sum(seconds), 1) AS card_seconds,
       round(sum(counted_j) / 3.6e6, 4) AS counted_kwh, round(sum(integrated_j) / 3.6e6, 4) AS integrated_kwh,
       round(sum(integrated_j) / nullif(sum(seconds), 0), 1) AS mean_w, any_value(prefilled_tokens) AS prefilled_tokens,
       any_value(generated_tokens) AS generated_tokens,
       round(sum(coalesce(counted_j, integrated_j)) / nullif(any_value(generated_tokens), 0), 3) AS j_per_token
FROM cards LEFT JOIN tokens USING (run_id) GROUP BY run_id ORDER BY run_id;

-- name: hottest_minutes
SELECT run_id, card_index, card_uuid, date_trunc('minute', time) AS minute, max(temperature_c) AS max_c,
       max(memory_temperature_c) AS max_memory_c, round(avg(power_w), 1) AS mean_w, round(avg(sm_clock_mhz)) AS mean_mhz,
       round(sum(seconds), 1) AS seconds, list_sort(list_distinct(flatten(list(throttle)))) AS throttle
FROM telemetry WHERE temperature_c IS NOT NULL
GROUP BY run_id, card_index, card_uuid, minute ORDER BY max_c DESC, run_id, card_uuid, minute LIMIT 20;

-- name: seconds_above
SELECT run_id, card_index, card_uuid, max(temperature_c) AS max_c, round(sum(seconds), 1) AS seconds,
       coalesce(round(sum(seconds) FILTER (temperature_c > 70), 1), 0) AS above_70_c,
       coalesce(round(sum(seconds) FILTER (temperature_c > 75), 1), 0) AS above_75_c,
       coalesce(round(sum(seconds) FILTER (temperature_c > 80), 1), 0) AS above_80_c,
       coalesce(round(sum(seconds) FILTER (temperature_c > 85), 1), 0) AS above_85_c,
       coalesce(round(sum(seconds) FILTER (temperature_c > 90), 1), 0) AS above_90_c
FROM telemetry WHERE temperature_c IS NOT NULL GROUP BY run_id, card_index, card_uuid ORDER BY run_id, card_uuid;

-- name: throttling
SELECT run_id, card_index, card_uuid, reason, round(sum(seconds), 1) AS seconds, count(*) AS readings
FROM (SELECT run_id, card_index, card_uuid, seconds, unnest(throttle) AS reason FROM telemetry)
GROUP BY ALL ORDER BY run_id, card_uuid, seconds DESC, reason;

-- name: governor
SELECT run_id, time, card_index, state, set_clock_mhz, round(set_power_w, 1) AS set_power_w, set_max_num_seqs, reason,
       temperature_c, round(power_w, 1) AS power_w
FROM telemetry WHERE state IS NOT NULL
QUALIFY (set_clock_mhz, set_power_w, set_max_num_seqs, state) IS DISTINCT FROM
    lag((set_clock_mhz, set_power_w, set_max_num_seqs, state))
        OVER (PARTITION BY run_id, session, engine, card_uuid ORDER BY time_s)
ORDER BY run_id, time, card_index;

-- name: engine_minutes
WITH engines AS (
    SELECT DISTINCT ON (run_id, session, engine, time) * FROM telemetry WHERE steps IS NOT NULL
    ORDER BY run_id, session, engine, time, card_index),
rates AS (
    SELECT *, coalesce(counted_s, time_s) AS at_s, at_s - lag(at_s) OVER life AS s,
           generated_tokens - lag(generated_tokens) OVER life AS generated,
           prefilled_tokens - lag(prefilled_tokens) OVER life AS prefilled,
           prefix_hits - lag(prefix_hits) OVER life AS hits, prefix_queries - lag(prefix_queries) OVER life AS queries,
           preemptions - lag(preemptions) OVER life AS preempted
    FROM engines WINDOW life AS (PARTITION BY run_id, session, engine, life ORDER BY time_s))
SELECT run_id, engine, date_trunc('minute', time) AS minute, round(avg(running), 1) AS running,
       round(avg(waiting), 1) AS waiting, round(100 * max(kv_use), 1) AS max_kv_percent,
       round(100.0 * sum(hits) / nullif(sum(queries), 0), 1) AS hit_percent, sum(preempted) AS preemptions,
       round(sum(prefilled) / nullif(sum(s), 0), 1) AS prefill_tokens_per_s,
       round(sum(generated) / nullif(sum(s), 0), 1) AS tokens_per_s
FROM rates GROUP BY run_id, engine, minute ORDER BY run_id, engine, minute;
