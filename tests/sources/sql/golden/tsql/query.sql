-- describe
SELECT TOP 0 * FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS [rows_of_query];

-- rows
SELECT [id], [note] FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS [rows_of_query] WHERE [the cursor] > 5;

-- the thousandth value
SELECT CAST([the cursor] AS nvarchar(max)) AS [headwater_value] FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS [rows_of_query] WHERE NOT [the cursor] IS NULL ORDER BY [the cursor] ASC OFFSET 999 ROWS FETCH FIRST 1 ROWS ONLY;

-- for Spark
SELECT [id] AS [h0], [note] AS [h1] FROM (SELECT [id], [note] FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS [rows_of_query]) AS [headwater_part];

