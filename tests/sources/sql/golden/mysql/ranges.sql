-- BIGINT: rows
SELECT `the cursor` FROM `sales`.`orders` WHERE `the cursor` > -1 AND `the cursor` <= 18446744073709551615;

-- BIGINT: greatest value
SELECT CAST(`the cursor` AS CHAR) AS `headwater_value` FROM `sales`.`orders` WHERE `the cursor` > -1 AND `the cursor` <= 18446744073709551615 ORDER BY `the cursor` DESC LIMIT 1;

-- BIGINT: from a value on
SELECT COUNT(*) FROM `sales`.`orders` WHERE `the cursor` >= -1;

-- BIGINT UNSIGNED: rows
SELECT `the cursor` FROM `sales`.`orders` WHERE `the cursor` > -1 AND `the cursor` <= 18446744073709551615;

-- BIGINT UNSIGNED: greatest value
SELECT CAST(`the cursor` AS CHAR) AS `headwater_value` FROM `sales`.`orders` WHERE `the cursor` > -1 AND `the cursor` <= 18446744073709551615 ORDER BY `the cursor` DESC LIMIT 1;

-- BIGINT UNSIGNED: from a value on
SELECT COUNT(*) FROM `sales`.`orders` WHERE `the cursor` >= -1;

-- DECIMAL: rows
SELECT `the cursor` FROM `sales`.`orders` WHERE `the cursor` > -0.10 AND `the cursor` <= 1000;

-- DECIMAL: greatest value
SELECT CAST(`the cursor` AS CHAR) AS `headwater_value` FROM `sales`.`orders` WHERE `the cursor` > -0.10 AND `the cursor` <= 1000 ORDER BY `the cursor` DESC LIMIT 1;

-- DECIMAL: from a value on
SELECT COUNT(*) FROM `sales`.`orders` WHERE `the cursor` >= -0.10;

-- DATE: rows
SELECT CAST(`the cursor` AS CHAR) AS `the cursor` FROM `sales`.`orders` WHERE `the cursor` > CAST('0001-01-01' AS date) AND `the cursor` <= CAST('9999-12-31' AS date);

-- DATE: greatest value
SELECT CAST(`the cursor` AS CHAR) AS `headwater_value` FROM `sales`.`orders` WHERE `the cursor` > CAST('0001-01-01' AS date) AND `the cursor` <= CAST('9999-12-31' AS date) ORDER BY `the cursor` DESC LIMIT 1;

-- DATE: from a value on
SELECT COUNT(*) FROM `sales`.`orders` WHERE `the cursor` >= CAST('0001-01-01' AS date);

-- DATETIME: rows
SELECT CAST(`the cursor` AS CHAR) AS `the cursor` FROM `sales`.`orders` WHERE `the cursor` > CAST('2026-03-29 01:30:00.123456' AS DATETIME(6)) AND `the cursor` <= CAST('2026-03-29 01:30:00.997000' AS DATETIME(6));

-- DATETIME: greatest value
SELECT CAST(`the cursor` AS CHAR) AS `headwater_value` FROM `sales`.`orders` WHERE `the cursor` > CAST('2026-03-29 01:30:00.123456' AS DATETIME(6)) AND `the cursor` <= CAST('2026-03-29 01:30:00.997000' AS DATETIME(6)) ORDER BY `the cursor` DESC LIMIT 1;

-- DATETIME: from a value on
SELECT COUNT(*) FROM `sales`.`orders` WHERE `the cursor` >= CAST('2026-03-29 01:30:00.123456' AS DATETIME(6));

-- TIMESTAMP: rows
SELECT CAST(`the cursor` AS CHAR) AS `the cursor` FROM `sales`.`orders` WHERE `the cursor` > CAST('2026-03-29 01:30:00.123456' AS DATETIME(6)) AND `the cursor` <= CAST('2026-03-28 23:30:00.123456' AS DATETIME(6));

-- TIMESTAMP: greatest value
SELECT CAST(`the cursor` AS CHAR) AS `headwater_value` FROM `sales`.`orders` WHERE `the cursor` > CAST('2026-03-29 01:30:00.123456' AS DATETIME(6)) AND `the cursor` <= CAST('2026-03-28 23:30:00.123456' AS DATETIME(6)) ORDER BY `the cursor` DESC LIMIT 1;

-- TIMESTAMP: from a value on
SELECT COUNT(*) FROM `sales`.`orders` WHERE `the cursor` >= CAST('2026-03-29 01:30:00.123456' AS DATETIME(6));

-- VARCHAR: rows
SELECT `the cursor` FROM `sales`.`orders` WHERE CAST(CAST(`the cursor` AS CHAR CHARACTER SET utf8mb4) AS BINARY) > x'' AND CAST(CAST(`the cursor` AS CHAR CHARACTER SET utf8mb4) AS BINARY) <= x'4f27427269656e5c207ac3bc7269636820f09f9a80';

-- VARCHAR: greatest value
SELECT CAST(`the cursor` AS CHAR) AS `headwater_value` FROM `sales`.`orders` WHERE CAST(CAST(`the cursor` AS CHAR CHARACTER SET utf8mb4) AS BINARY) > x'' AND CAST(CAST(`the cursor` AS CHAR CHARACTER SET utf8mb4) AS BINARY) <= x'4f27427269656e5c207ac3bc7269636820f09f9a80' ORDER BY CAST(CAST(`the cursor` AS CHAR CHARACTER SET utf8mb4) AS BINARY) DESC LIMIT 1;

-- VARCHAR: from a value on
SELECT COUNT(*) FROM `sales`.`orders` WHERE CAST(CAST(`the cursor` AS CHAR CHARACTER SET utf8mb4) AS BINARY) >= x'';

