-- The named queries: `nightbatch sql --name NAME`.

-- name: by_source
SELECT source, count(*) AS results, sum(prompt_tokens) AS prompt_tokens, sum(output_tokens) AS output_tokens,
       round(100.0 * sum(cached_tokens) / sum(prompt_tokens), 1) AS cached_percent
FROM results GROUP BY source ORDER BY source;

-- name: latest_run_by_source
SELECT source, count(*) AS results, sum(output_tokens) AS output_tokens,
       count(*) FILTER (finish_reason = 'length') AS cut_at_max_tokens,
       replace(left(min_by(trim(output_text), abs(length(output_text) - 60)), 80), chr(10), ' ') AS an_answer
FROM results
WHERE run_id = (SELECT run_id FROM runs WHERE state = 'done' ORDER BY ended_at DESC LIMIT 1)
GROUP BY source ORDER BY source;

-- name: rejects_by_reason
SELECT source, reason, count(*) AS rows, any_value(file || ' line ' || line || ': ' || message) AS example
FROM rejects GROUP BY ALL ORDER BY rows DESC, source, reason;

-- name: failures
SELECT run_id, source, custom_id, error FROM failures ORDER BY run_id, source, custom_id;

-- name: outcomes
SELECT run_id, source, status, count(*) AS rows FROM
    (SELECT run_id, source, status FROM results UNION ALL SELECT run_id, source, status FROM failures)
GROUP BY ALL ORDER BY run_id, source, status;
