"""What makes rows durable and visible: Iceberg tables, Kafka topics, files, the console."""
