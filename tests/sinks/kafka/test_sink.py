"""What stands in a topic after a window has landed: keys, headers, values, and how topics are found and made."""

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pydantic import ValidationError

from headwater.config.sinks.kafka import KafkaSinkSettings
from headwater.model.errors import InputError, LeaseLost, UnknownName
from headwater.sinks.kafka.sink import topic_for
from headwater.testing.memory_rows import attempt_at, memory_rows, spark_rows, table_of, window_up_to
from tests.sinks.kafka.topic_reader import kafka_sink, read_topic

WINDOW = window_up_to(10)


def test_each_row_is_one_message_with_key_value_and_origin(kafka):
    topic = kafka.topic()
    counts = []
    rows = memory_rows("cms.orders", (table_of([1, 2]), table_of([3])), key=("id",))
    landing = kafka_sink(kafka, topic).land(attempt_at(WINDOW, progress=counts.append), rows)
    messages = read_topic(kafka, topic)
    assert (landing.rows, sum(counts), landing.proof) == (3, 3, {"topic": topic})
    assert [read.key for read in messages] == [b"1", b"2", b"3"]
    assert messages[0].row == {"id": 1, "name": "name 1", "at": "2023-11-14T22:13:20.000001Z"}
    position = messages[0].headers.pop("headwater.position")
    assert messages[0].headers == {
        "headwater.pipeline": "shop",
        "headwater.stream": "cms.orders",
        "headwater.run": "run-1",
        "headwater.window": WINDOW.id,
    }
    assert len({position, *(read.position for read in messages[1:])}) == 3


def test_the_key_can_be_other_columns_or_none(kafka):
    rows = memory_rows("orders", (table_of([1]),), key=("id",))
    keys = []
    for key in ("name", ["id", "name"], []):
        topic = kafka.topic()
        kafka_sink(kafka, topic, key=key).land(attempt_at(WINDOW), rows)
        keys.append(read_topic(kafka, topic)[0].key)
    assert keys == [b"name 1", b'{"id":1,"name":"name 1"}', None]


def test_a_key_that_is_no_column_is_refused_before_anything_is_sent(kafka):
    with pytest.raises(UnknownName, match="no column 'nr'") as caught:
        kafka_sink(kafka, kafka.topic(), key="nr").land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert "id, name, at" in caught.value.hint


def test_without_headers_a_message_has_none(kafka):
    topic = kafka.topic()
    kafka_sink(kafka, topic, headers=False).land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert [read.headers for read in read_topic(kafka, topic)] == [{}]


def test_a_key_finds_the_partition_where_javas_clients_look_for_it(kafka):
    """Kafka's own example of its hash: murmur2 of these keys over 5 partitions, as the Java client computes it."""
    topic = kafka.topic(partitions=5)
    kafka_sink(kafka, topic).land(attempt_at(WINDOW), memory_rows("orders", (table_of(range(200)),), key=("id",)))
    assert {read.key: read.partition for read in read_topic(kafka, topic)} == {
        str(i).encode(): (murmur2(str(i).encode()) & 0x7FFFFFFF) % 5 for i in range(200)
    }


def murmur2(data: bytes) -> int:
    """As in org.apache.kafka.common.utils.Utils: a specification, so written out here."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    aligned = len(data) // 4 * 4
    for start in range(0, aligned, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    if aligned < len(data):
        h = (h ^ int.from_bytes(data[aligned:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def test_a_topic_that_is_not_there_is_an_error_that_says_so(kafka):
    with pytest.raises(UnknownName, match="there is no topic 'nowhere_to_be_seen'") as caught:
        kafka_sink(kafka, "nowhere_to_be_seen").land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert "create_topic" in caught.value.hint
    assert "nowhere_to_be_seen" not in kafka.admin.list_topics(timeout=10).topics  # not even by asking


def test_a_topic_can_be_made_with_its_options(kafka):
    topic = f"{kafka.topic()}.made"
    create = {"partitions": 3, "replication": 1, "options": {"max.message.bytes": 2000}}
    sink = kafka_sink(kafka, topic, create_topic=create)
    for end in (10, 20):
        sink.land(attempt_at(window_up_to(end)), memory_rows("orders", (table_of(range(end)),), key=("id",)))
    assert len(read_topic(kafka, topic)) == 30
    assert len(kafka.admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3


def test_a_topic_can_be_made_as_the_brokers_like_it(kafka):
    topic = f"{kafka.topic()}.made"
    kafka_sink(kafka, topic, create_topic={}).land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert len(read_topic(kafka, topic)) == 1


def test_a_topic_that_cannot_be_made_as_written_is_the_users_mistake(kafka):
    sink = kafka_sink(kafka, f"{kafka.topic()}.made", create_topic={"replication": 3})
    with pytest.raises(InputError, match=r"creating topic .*\.made: .*replication factor") as caught:
        sink.land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert "create_topic:" in caught.value.hint


def test_a_topic_that_takes_only_small_batches_gets_small_batches(kafka):
    """A producer that fills batches beyond the topic's limit would have them refused, each message small enough."""
    topic = kafka.topic(config={"max.message.bytes": "2000", "compression.type": "uncompressed"})
    rows = memory_rows("orders", (table_of(range(5_000)),), key=("id",))
    landing = kafka_sink(kafka, topic, options={"compression.type": "none"}).land(attempt_at(WINDOW), rows)
    assert (landing.rows, len(read_topic(kafka, topic))) == (5_000, 5_000)


@pytest.mark.parametrize(
    ("template", "stream", "topic"),
    [
        ("content_delta", "cms.content", "content_delta"),
        ("shop.{stream}", "public.orders", "shop.orders"),
        ("{schema}.{table}", "public.orders", "public.orders"),
        ("{schema}-{table}", "orders", "default-orders"),
        ("t.{table}", "public.My Table/ä", "t.My_Table__"),
    ],
)
def test_a_stream_finds_its_topic(template, stream, topic):
    assert topic_for(template, stream) == topic


def test_a_lost_lease_sends_nothing(kafka):
    """G4: asked right before the first message can be seen."""
    topic = kafka.topic()

    def lost() -> None:
        raise LeaseLost("taken over")

    with pytest.raises(LeaseLost):
        kafka_sink(kafka, topic).land(attempt_at(WINDOW, ensure_lease=lost), memory_rows("orders", (table_of([1]),)))
    assert read_topic(kafka, topic) == []


def test_a_window_without_rows_sends_nothing(kafka):
    topic = kafka.topic()
    landing = kafka_sink(kafka, topic).land(attempt_at(WINDOW), memory_rows("orders", (table_of([]),)))
    assert (landing.rows, read_topic(kafka, topic)) == (0, [])


def test_the_sink_never_claims_that_a_window_is_there(kafka):
    topic = kafka.topic()
    sink = kafka_sink(kafka, topic)
    sink.land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert sink.landed(attempt_at(WINDOW), "orders") is None


@pytest.mark.spark
@pytest.mark.parametrize("as_frame", [False, True])
def test_a_large_window_is_sent_by_sparks_tasks(kafka, spark, as_frame):
    topic = kafka.topic(partitions=3)
    counts = []
    splits = memory_rows("orders", (table_of(range(1000)), table_of(range(1000, 1500))), key=("id",), counted=False)
    rows = spark_rows(splits) if as_frame else splits
    attempt = attempt_at(WINDOW, spark=lambda: spark, progress=counts.append)
    landing = kafka_sink(kafka, topic).land(attempt, rows)
    messages = read_topic(kafka, topic)
    assert (landing.rows, sum(counts)) == (1500, 1500)
    assert sorted(int(read.key) for read in messages) == list(range(1500))
    # Positions are those that a small window would have had: who sends does not matter.
    small = kafka.topic(partitions=3)
    kafka_sink(kafka, small).land(attempt_at(WINDOW), memory_rows("orders", (table_of(range(1500)),), key=("id",)))
    assert {read.position for read in read_topic(kafka, small)} == {read.position for read in messages}


def test_messages_of_others_in_the_topic_are_left_alone(kafka):
    topic = kafka.topic()
    other = Producer({"bootstrap.servers": kafka.brokers})
    other.produce(topic, b"not ours")
    assert other.flush(10) == 0
    kafka_sink(kafka, topic).land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert [read.value[:8] for read in read_topic(kafka, topic)] == [b"not ours", b'{"id":1,']


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"acks": 1}}, "acks cannot be set here"),
        ({"options": {"enable.idempotence": False}}, "enable.idempotence cannot be set here"),
        ({"options": {"bootstrap.servers": "b:1"}}, "bootstrap.servers is set by brokers"),
        ({"topic": "two words"}, "is not a topic name"),
        ({"topic": "{database}"}, "{database} is unknown"),
        ({"key": ["id", "id"]}, "named twice"),
        ({"format": "avro"}, "belong together"),
        ({"avro_schema": "x.avsc"}, "belong together"),
        ({"timeout": "10ms"}, "at least 1s"),
    ],
)
def test_settings_that_break_the_promise_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        KafkaSinkSettings(**{"brokers": "localhost:9092", "topic": "t", **settings})


def test_an_option_that_librdkafka_does_not_know_is_the_users_mistake(kafka):
    with pytest.raises(InputError, match=r"no\.such\.option"):
        kafka_sink(kafka, kafka.topic(), options={"no.such.option": 1}).land(
            attempt_at(WINDOW), memory_rows("orders", (table_of([1]),))
        )


def test_secrets_are_hidden(kafka):
    """G11: in the settings, in what goes to the tasks, and in the error of a login that fails."""
    security = {"mechanism": "PLAIN", "username": "ann", "password": "hunter2"}
    settings = KafkaSinkSettings(
        brokers=kafka.brokers, topic="t", security=security, options={"ssl.key.pem": "hunter3"}
    )
    sink = kafka_sink(kafka, "t", security=security, timeout="3s")
    shown = [repr(settings), str(settings), repr(vars(sink))]
    with pytest.raises(Exception, match="Kafka at") as caught:
        sink.land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    shown.append(str(caught.value))
    assert "hunter" not in "".join(shown)


def test_a_table_of_many_columns_is_one_object_each(kafka):
    topic = kafka.topic()
    wide = pa.table({f"c{number}": [number] for number in range(500)})
    kafka_sink(kafka, topic).land(attempt_at(WINDOW), memory_rows("wide", (wide,)))
    assert read_topic(kafka, topic)[0].row == {f"c{number}": number for number in range(500)}
