-- BIGINT as int64
SELECT `x` FROM `sales`.`orders`;

-- BIGINT as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- BIGINT UNSIGNED as decimal(20,0)
SELECT `x` FROM `sales`.`orders`;

-- BIGINT UNSIGNED as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- DECIMAL as decimal(12,2)
SELECT `x` FROM `sales`.`orders`;

-- DECIMAL as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- DATE as date
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- DATE as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- DATETIME as timestamp
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- DATETIME as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- TIMESTAMP as timestamptz
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- TIMESTAMP as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- VARCHAR as string
SELECT `x` FROM `sales`.`orders`;

-- VARCHAR as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- TINYINT as int32
SELECT `x` FROM `sales`.`orders`;

-- TINYINT as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- INT UNSIGNED as int64
SELECT `x` FROM `sales`.`orders`;

-- INT UNSIGNED as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- FLOAT as float32
SELECT `x` * 1E0 AS `x` FROM `sales`.`orders`;

-- FLOAT as string (as_text)
SELECT CAST(`x` * 1E0 AS CHAR) AS `x` FROM `sales`.`orders`;

-- DOUBLE as float64
SELECT `x` FROM `sales`.`orders`;

-- DOUBLE as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- BIT as decimal(20,0)
SELECT CAST(`x` AS UNSIGNED) AS `x` FROM `sales`.`orders`;

-- BIT as string (as_text)
SELECT CAST(CAST(`x` AS UNSIGNED) AS CHAR) AS `x` FROM `sales`.`orders`;

-- TIME as string
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- TIME as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- YEAR as string
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- YEAR as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- JSON as string
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- JSON as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- CHAR as string
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- CHAR as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- ENUM as string
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- ENUM as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

-- BLOB as binary
SELECT `x` FROM `sales`.`orders`;

-- BLOB as string (as_text)
SELECT HEX(`x`) AS `x` FROM `sales`.`orders`;

-- LONGTEXT as string
SELECT `x` FROM `sales`.`orders`;

-- LONGTEXT as string (as_text)
SELECT CAST(`x` AS CHAR) AS `x` FROM `sales`.`orders`;

