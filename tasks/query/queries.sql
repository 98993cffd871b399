-- The named queries: `nightbatch sql --name NAME`. `results`, `failures` and `runs` go together by run_id; `requests` and
-- `rejects` belong to a dataset, which several runs may share: go over runs.dataset_id.

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
