"""Columns of JSON values: inferred once, grown later."""

from pyspark.sql.types import StructType

from lograft.spark.pipelines.json_schemas import changed, grown, inferred


def ddl(schema: StructType) -> str:
    return schema.simpleString().removeprefix("struct<").removesuffix(">")


def test_types_are_those_of_all_records_together() -> None:
    values = [
        '{"id": 1, "price": 2, "ok": true, "tags": ["a"], "who": {"name": "x"}}',
        '{"id": 9223372036854775807, "price": 2.5, "tags": [], "who": {"age": 7}, "note": null}',
        "not json",
        "[1]",
    ]
    assert ddl(inferred(values)) == (
        "id:bigint,price:double,ok:boolean,tags:array<string>,"
        "who:struct<name:string,age:bigint>,note:string"
    )


def test_what_differs_becomes_text() -> None:
    assert ddl(inferred(['{"a": 1, "b": [1]}', '{"a": "x", "b": {}}'])) == "a:string,b:string"


def test_numbers_that_a_double_would_round_are_text() -> None:
    assert ddl(inferred(['{"id": 9223372036854775808}', '{"id": 1}'])) == "id:string"
    assert ddl(inferred(['{"id": -9223372036854775808}'])) == "id:bigint"


def test_tables_do_not_tell_upper_from_lower_case() -> None:
    values = ['{"Id": 1, "who": {"Name": "x", "name": "y"}}', '{"id": "two"}']
    assert ddl(inferred(values)) == "Id:bigint,who:struct<Name:string>"


def test_what_is_nested_too_deep_is_text_or_no_json() -> None:
    deep = '{"a":' * 60 + "1" + "}" * 60
    assert ddl(inferred([deep])).endswith("a:string" + ">" * 50)
    assert ddl(inferred(["[" * 100_000, '{"id": 1}'])) == "id:bigint"


def test_new_fields_come_behind_and_old_ones_keep_their_types() -> None:
    known = inferred(['{"id": 1, "who": {"name": "x"}}'])
    seen = inferred(['{"ID": "one", "who": {"age": 7}, "price": 0.5}'])
    assert ddl(grown(known, seen)) == "id:bigint,who:struct<name:string,age:bigint>,price:double"


def test_types_that_do_not_go_together_are_named() -> None:
    known = inferred(['{"id": 1, "gone": 1, "who": {"name": "x", "age": 7}}'])
    assert changed(known, inferred(['{"ID": 1, "new": 1, "who": {"name": "x", "new": 1}}'])) == []
    other = inferred(['{"id": "x", "who": {"age": "x"}}'])
    assert changed(known, other) == ["id", "who.age"]
    assert changed(known, inferred(['{"who": 1}'])) == ["who"]
