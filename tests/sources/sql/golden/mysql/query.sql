-- describe
SELECT * FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS `rows_of_query` LIMIT 0;

-- rows
SELECT `id`, `note` FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS `rows_of_query` WHERE `the cursor` > 5;

-- the thousandth value
SELECT CAST(`the cursor` AS CHAR) AS `headwater_value` FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS `rows_of_query` WHERE NOT `the cursor` IS NULL ORDER BY `the cursor` ASC LIMIT 1 OFFSET 999;

-- for Spark
SELECT `id` AS `h0`, `note` AS `h1` FROM (SELECT `id`, `note` FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS `rows_of_query`) AS `headwater_part`;

